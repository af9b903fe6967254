"""The `blends` kernel in Cython."""

from libc.math cimport INFINITY
from libc.stdint cimport int16_t, int64_t


def blend_datasets(
    const double[::1] weights not None,
    const int64_t[::1] limits not None,
    int64_t first,
    int64_t[::1] counts not None,
    int16_t[::1] out not None,
):
    """Write the dataset of samples `first`, `first` + 1, ... of a blend, and count the samples of each dataset.

    See `fastpack.kernels.blends_np.blend_datasets`.
    """
    cdef Py_ssize_t i, k, chosen, n_datasets = weights.shape[0], n = out.shape[0]
    cdef double number, error, largest
    if limits.shape[0] != n_datasets or counts.shape[0] != n_datasets:
        raise ValueError("weights, limits and counts must have one length")
    with nogil:
        for i in range(n):
            number = <double> max(first + i, <int64_t> 1)
            chosen = -1
            largest = -INFINITY
            for k in range(n_datasets):
                error = weights[k] * number - <double> counts[k]
                if error > largest and counts[k] < limits[k]:
                    chosen = k
                    largest = error
            if chosen < 0:
                break
            out[i] = <int16_t> chosen
            counts[chosen] += 1
        else:
            i = n
    return i
