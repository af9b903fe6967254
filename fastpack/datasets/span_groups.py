"""The addresses of parts of windows, read only as far as they are needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastpack.datasets.read_windows import ReadWindows
from fastpack.datasets.token_streams import StreamWindows
from fastpack.datasets.window_groups import WindowGroup, address_of, dtype_selector
from fastpack.datasets.windows import Windows

Numbers = npt.NDArray[np.int64]


def span_groups(
    windows: Windows, samples: Numbers, starts: Numbers, lengths: Numbers, negative: bool
) -> Iterator[WindowGroup]:
    """Yield tokens starts[k] to starts[k] + lengths[k] of window samples[k], grouped by dtype.

    Windows that are mapped give addresses; of others, only these tokens are read. A dtype without a kernel
    (big-endian, float) is copied to int64.
    """
    if not isinstance(windows, (ReadWindows, StreamWindows)):
        for group in windows.groups(samples, negative):
            offsets = starts[group.rows].view(np.uint64) * np.uint64(group.dtype_selector.itemsize)
            yield group._replace(addresses=group.addresses + offsets)
        return
    shards, firsts = windows.positions(samples, negative)
    places = list(zip(shards.tolist(), (firsts + starts).tolist(), lengths.tolist(), strict=True))
    dtypes = [windows.dtype_of(number) for number, _, _ in places]
    for dtype in dict.fromkeys(dtypes):
        chosen = np.array([k for k, other in enumerate(dtypes) if other == dtype])
        ends = np.cumsum(lengths[chosen])
        begins = ends - lengths[chosen]
        tokens = np.empty(int(ends[-1]), dtype)
        for k, begin, end in zip(chosen.tolist(), begins.tolist(), ends.tolist(), strict=True):
            shard, first, _ = places[k]
            windows.read(shard, first, tokens[begin:end])
        if dtype_selector(tokens) is None:
            tokens = tokens.astype(np.int64)
        selector = dtype_selector(tokens)
        assert selector is not None
        offsets = begins.view(np.uint64) * np.uint64(selector.itemsize)
        yield WindowGroup(np.uint64(address_of(tokens)) + offsets, chosen, selector, tokens)


def will_need_spans(windows: Windows, samples: Numbers, starts: Numbers, lengths: Numbers, negative: bool) -> None:
    """Hint the OS, or the block cache of a store, to read these tokens, as `Windows.will_need` does for windows."""
    if isinstance(windows, ReadWindows):
        shards, firsts = windows.positions(samples, negative)
        for number, start, n_tokens in zip(shards.tolist(), (firsts + starts).tolist(), lengths.tolist(), strict=True):
            size = windows.dtype_of(number).itemsize
            windows.files.will_need(number, start * size, n_tokens * size)
    elif not isinstance(windows, StreamWindows) and windows.begin_prefetch():
        for group in span_groups(windows, samples, starts, lengths, negative):
            windows.hint(group, lengths[group.rows])
