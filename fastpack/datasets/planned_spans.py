"""Where the segments of planned rows come from and go, and the parts of them that lie in spans of the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.datasets.row_shares import PADDING, Numbers, Spans


class SegmentPlaces(NamedTuple):
    """Where the tokens of each segment come from and go; int64 [k] each.

    first: the first token, -1 for padding. length: tokens, 0 for padding. size: columns that the segment takes. number:
    of the segment within the row.
    """

    first: Numbers
    row: Numbers
    column: Numbers
    length: Numbers
    size: Numbers
    number: Numbers


class SegmentParts(NamedTuple):
    """Parts of segments.

    places: where they come from and go. positions: of the first token in its segment, int64 [k]. goes_on: whether the
    segment has a token after them, bool [k].
    """

    places: SegmentPlaces
    positions: Numbers
    goes_on: npt.NDArray[np.bool_]


def cut_places(places: SegmentPlaces, index: Numbers, spans: Spans, width: int) -> SegmentParts:
    """Return the parts of segments that lie in spans.

    places: all segments and padding of some rows of `width` tokens. index: the row of each span there, int64 [k].
    """
    inside, outside = np.flatnonzero(spans.starts != PADDING), spans.chosen(spans.starts == PADDING)
    begins = places.row * width + places.column
    ends = begins + places.size
    starts = (index * width + spans.starts)[inside]
    stops = starts + spans.lengths[inside]
    firsts = np.searchsorted(ends, starts, side="right")
    counts = np.searchsorted(ends, stops, side="left") - firsts + 1
    k = np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    span = np.repeat(np.arange(len(inside)), counts)
    low, high = np.maximum(starts[span], begins[k]), np.minimum(stops[span], ends[k])
    positions = low - begins[k]
    lengths = np.clip(places.length[k] - positions, 0, high - low)
    rows, columns = spans.rows[inside][span], spans.columns[inside][span] + low - starts[span]
    tokens = np.where(lengths > 0, places.first[k] + positions, -1)
    none = np.zeros_like(outside.rows)
    parts = (tokens, rows, columns, lengths, high - low, places.number[k])
    paddings = (none - 1, outside.rows, outside.columns, none, outside.lengths, outside.documents)
    return SegmentParts(
        SegmentPlaces(*map(np.concatenate, zip(parts, paddings, strict=True))),
        np.concatenate([positions, outside.positions]),
        np.concatenate([(lengths > 0) & (positions + lengths < places.length[k]), none > 0]),
    )
