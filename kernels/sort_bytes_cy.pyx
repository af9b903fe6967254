"""The `sort_bytes` kernels in Cython: a merge sort of (first 8 bytes, number) that keeps sorted runs."""

from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.string cimport memcmp, memcpy


cdef extern from "byte_order.h" nogil:
    uint64_t htobe64(uint64_t)

cdef enum:
    SHORT_RUN = 24  # texts sorted by insertion; 16 and 32 take as long


cdef struct Item:
    uint64_t word  # the first 8 bytes after the common prefix, big-endian
    int64_t number


cdef struct Texts:
    const uint8_t* data
    int64_t n_data
    const int64_t* bounds
    int64_t n_texts
    const int64_t* numbers  # of the items' texts, `stride` apart; NULL: the items' own numbers
    int64_t n_numbers
    int64_t stride
    int64_t n_common  # length of the common prefix
    bint repeats  # two equal texts were compared; equal texts become neighbours, which are always compared
    bint outside  # a number or a bound is outside its array


cdef struct Text:
    const uint8_t* at
    int64_t n_bytes


cdef inline Text text_of(Texts* texts, int64_t number) noexcept nogil:
    """Return an item's text. A text outside the data is returned as empty, and noted."""
    cdef Text text = Text(texts.data, 0)
    cdef int64_t start, stop
    if texts.numbers != NULL:
        number = texts.numbers[number * texts.stride] if 0 <= number < texts.n_numbers else -1
    if 0 <= number < texts.n_texts:
        start, stop = texts.bounds[number], texts.bounds[number + 1]
        if 0 <= start <= stop <= texts.n_data:
            text.at += start
            text.n_bytes = stop - start
            return text
    texts.outside = True
    return text


cdef inline void set_item(Item* item, Texts* texts, int64_t number) noexcept nogil:
    cdef Text text = text_of(texts, number)
    cdef int64_t n = text.n_bytes - texts.n_common
    cdef uint64_t word = 0
    if n >= 8:
        memcpy(&word, text.at + texts.n_common, 8)
    elif n > 0:
        memcpy(&word, text.at + texts.n_common, <size_t>n)
    item.word = htobe64(word)
    item.number = number


cdef int compare_ends(Texts* texts, int64_t left_number, int64_t right_number) noexcept nogil:
    """Compare texts whose words are equal, or not compared yet."""
    cdef Text left = text_of(texts, left_number), right = text_of(texts, right_number)
    cdef int64_t n = min(left.n_bytes, right.n_bytes) - texts.n_common
    cdef int found = 0
    if n > 0:
        found = memcmp(left.at + texts.n_common, right.at + texts.n_common, <size_t>n)
    if found == 0:
        found = (left.n_bytes > right.n_bytes) - (left.n_bytes < right.n_bytes)
        texts.repeats |= found == 0
    return found


cdef inline bint is_after(const Item* left, const Item* right, Texts* texts) noexcept nogil:
    """Return whether `left` sorts after `right`."""
    if left.word != right.word:
        return left.word > right.word
    return compare_ends(texts, left.number, right.number) > 0


cdef void insert(Item* items, int64_t n_sorted, int64_t n, Texts* texts) noexcept nogil:
    """Sort n items, of which the first n_sorted are in order."""
    cdef int64_t i, k
    cdef Item item
    for i in range(n_sorted, n):
        item = items[i]
        k = i
        while k > 0 and is_after(&items[k - 1], &item, texts):
            items[k] = items[k - 1]
            k -= 1
        items[k] = item


cdef int64_t make_runs(Item* items, int64_t n, int64_t* ends, Texts* texts) noexcept nogil:
    """Sort short runs and keep longer ones that are in order; return the number of runs, and write their ends."""
    cdef int64_t first = 0, stop, n_runs = 0
    while first < n:
        stop = first + 1
        while stop < n and not is_after(&items[stop - 1], &items[stop], texts):
            stop += 1
        if stop - first < SHORT_RUN and stop < n:
            insert(items + first, stop - first, min(SHORT_RUN, n - first), texts)
            stop = min(first + SHORT_RUN, n)
        ends[n_runs] = stop
        n_runs += 1
        first = stop
    return n_runs


cdef void merge(const Item* left, const Item* middle, const Item* stop, Item* out, Texts* texts) noexcept nogil:
    """Merge two sorted runs, which meet at `middle`."""
    cdef const Item* right = middle
    if right == stop or not is_after(right - 1, right, texts):
        memcpy(out, left, <size_t>(stop - left) * sizeof(Item))
        return
    while True:
        if is_after(left, right, texts):
            out[0] = right[0]
            right += 1
            out += 1
            if right == stop:
                memcpy(out, left, <size_t>(middle - left) * sizeof(Item))
                return
        else:
            out[0] = left[0]
            left += 1
            out += 1
            if left == middle:
                memcpy(out, right, <size_t>(stop - right) * sizeof(Item))
                return


cdef Item* merge_runs(
    Item* items, Item* spare, int64_t n, int64_t* ends, int64_t n_runs, Texts* texts
) noexcept nogil:
    """Merge runs of n items until one is left; return the buffer that contains it.

    `ends` is in the caller's memory: whatever it contains, no item beyond n is accessed.
    """
    cdef int64_t i, first, middle, stop
    while n_runs > 1:
        first = 0
        for i in range(0, n_runs, 2):
            middle = min(max(ends[i], first), n)
            if i + 1 < n_runs and middle > first:
                stop = min(max(ends[i + 1], middle), n)
                merge(items + first, items + middle, items + stop, spare + first, texts)
                first = stop
            else:
                memcpy(spare + first, items + first, <size_t>(middle - first) * sizeof(Item))
                first = middle
            ends[i // 2] = first
        n_runs = (n_runs + 1) // 2
        items, spare = spare, items
    return items


cdef int64_t count_common(Texts* texts, int64_t n) noexcept nogil:
    """Return the length of the common prefix of all texts."""
    cdef int64_t i, k, n_common
    cdef Text text, first = text_of(texts, 0)
    n_common = first.n_bytes
    for i in range(1, n):
        text = text_of(texts, i)
        n_common = min(n_common, text.n_bytes)
        if n_common and memcmp(text.at, first.at, <size_t>n_common) != 0:
            k = 0
            while k < n_common and text.at[k] == first.at[k]:
                k += 1
            n_common = k
    return n_common


cdef bint are_in_order(Texts* texts, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(1, n):
        if compare_ends(texts, i - 1, i) > 0:
            return False
    return True


cdef void sort_items(int64_t first, int64_t n, int64_t* work, Texts* texts, int64_t* order) noexcept nogil:
    """Sort n items from number `first` on; work: int64[5 * n + 2]."""
    cdef Item* items = <Item*>work
    cdef Item* spare = <Item*>(work + 2 * n)
    cdef int64_t* ends = work + 4 * n
    cdef int64_t i
    for i in range(n):
        set_item(&items[i], texts, first + i)
    items = merge_runs(items, spare, n, ends, make_runs(items, n, ends, texts), texts)
    for i in range(n):
        order[i] = items[i].number


def sort_texts(
    const uint8_t[::1] data not None, const int64_t[::1] bounds not None, int64_t[::1] work not None,
    int64_t[::1] order not None,
):
    """Write the numbers of the texts in sorted order, of equal texts the lower first; return whether any are equal.

    See `fastpack.kernels.sort_bytes_np.sort_texts`.
    """
    cdef int64_t n = order.shape[0], i
    cdef Texts texts
    if bounds.shape[0] != n + 1 or work.shape[0] < 5 * n + 2:
        raise ValueError(f"{bounds.shape[0]} bounds and {work.shape[0]} integers of work for {n} texts")
    if not n:
        return False
    texts = Texts(NULL, data.shape[0], &bounds[0], n, NULL, 0, 0, 0, False, False)
    if data.shape[0]:
        texts.data = &data[0]
    with nogil:
        if are_in_order(&texts, n):  # as most are; `work` is then not accessed
            for i in range(n):
                order[i] = i
        else:
            texts.repeats = False
            texts.n_common = count_common(&texts, n)
            sort_items(0, n, &work[0], &texts, &order[0])
    if texts.outside:
        raise ValueError("a text outside the data")
    return texts.repeats


def sort_within(
    const int64_t[:, ::1] rows not None, int64_t first, const uint8_t[::1] data not None,
    const int64_t[::1] bounds not None, int64_t[::1] work not None, int64_t[::1] order not None,
):
    """Write row numbers from `first` on, each group sorted by text; return how many.

    See `fastpack.kernels.sort_bytes_np.sort_within`.
    """
    cdef int64_t n = rows.shape[0], room = order.shape[0], n_taken = 0, stop
    cdef Texts texts
    if work.shape[0] < 5 * room + 2 or rows.shape[1] < 3 or not 0 <= first <= n:
        raise ValueError(f"{work.shape[0]} integers of work for {room} rows from {first} of {n}")
    if not room or first == n:
        return 0
    texts = Texts(NULL, data.shape[0], NULL, bounds.shape[0] - 1, &rows[0, rows.shape[1] - 1], n, rows.shape[1], 0,
                  False, False)
    if bounds.shape[0]:
        texts.bounds = &bounds[0]
    if data.shape[0]:
        texts.data = &data[0]
    with nogil:
        while first < n:
            stop = first + 1
            while stop < n and rows[stop, 0] == rows[first, 0] and rows[stop, 1] == rows[first, 1]:
                stop += 1
                if stop - first > room - n_taken:
                    break
            if stop - first > room - n_taken:
                break
            if stop - first == 1:
                order[n_taken] = first
            else:
                sort_items(first, stop - first, &work[0], &texts, &order[n_taken])
            n_taken += stop - first
            first = stop
    if texts.outside:
        raise ValueError("a text outside the data")
    return n_taken


def first_unsorted(const int64_t[:, ::1] rows not None, int n_columns):
    """Return the first row whose first `n_columns` are not greater than those of the previous row, or len(rows).

    See `fastpack.kernels.sort_bytes_np.first_unsorted`.
    """
    cdef int64_t n = rows.shape[0], i
    cdef int k
    if not 0 < n_columns <= rows.shape[1]:
        raise ValueError(f"{n_columns} columns of {rows.shape[1]}")
    with nogil:
        for i in range(1, n):
            k = 0
            while k < n_columns and rows[i, k] == rows[i - 1, k]:
                k += 1
            if k == n_columns or rows[i, k] < rows[i - 1, k]:
                break
        else:
            i = n
    return i
