# Rows of up to four outputs. Include "dtypes.pxi" first; the including module defines `struct Task` with the fields
# outputs, output_type, n_rows and width.

cdef inline void set_all(wide_t *out, Py_ssize_t n, wide_t value) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = value


cdef inline void ramp(wide_t *out, Py_ssize_t n, int64_t first) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = <wide_t> (first + i)


cdef int add_output(Task *task, int k, const Py_buffer *view) except -1:
    """Set output k; ValueError unless it has the shape and type of input_ids, the first one."""
    cdef int code = type_code(view)
    if code not in (INT64, INT32) or (k > 0 and code != task.output_type):
        raise ValueError("outputs must be all int64 or all int32")
    if view.ndim != 2 or (k > 0 and (view.shape[0] != task.n_rows or view.shape[1] != task.width)):
        raise ValueError("outputs must have one shape")
    task.output_type, task.n_rows, task.width = code, view.shape[0], view.shape[1]
    task.outputs[k] = view.buf
    return 0
