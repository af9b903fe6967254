# Dispatch by dtype for every kernel: `type_code` reads the format of an array's buffer, and the kernel compares it with
# the constants below. This takes 50 ns per call; a fused `def` would take 300 ns.

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_STRIDED_RO, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

ctypedef fused token_t:
    uint8_t
    uint16_t
    uint32_t
    int8_t
    int16_t
    int32_t
    int64_t

ctypedef fused wide_t:  # of indices, and of the outputs of a batch
    int32_t
    int64_t


cdef enum:  # bytes per item, negative if signed; UNKNOWN_TYPE: not a native integer type
    UNKNOWN_TYPE = 0
    UINT8 = 1
    UINT16 = 2
    UINT32 = 4
    INT8 = -1
    INT16 = -2
    INT32 = -4
    INT64 = -8


cdef inline int type_code(const Py_buffer *view) noexcept nogil:
    """Return the type code of a buffer's items."""
    cdef char code = view.format[0] if view.format[0] and view.format[1] == 0 else 0
    if code == b"b" or code == b"h" or code == b"i" or code == b"l" or code == b"q":
        return -<int> view.itemsize
    if code == b"B" or code == b"H" or code == b"I" or code == b"L" or code == b"Q":
        return <int> view.itemsize
    return UNKNOWN_TYPE


cdef inline int type_code_of(array) except? -100:
    """Return the type code of an array."""
    cdef Py_buffer view
    cdef int code
    PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT)
    code = type_code(&view)
    PyBuffer_Release(&view)
    return code
