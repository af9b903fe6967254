"""Mask targets outside marked spans."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import DataWarning

Targets = npt.NDArray[Any]


def mask_targets(targets: Targets, begin: int, end: int, ignore: int) -> Targets:
    """Replace the targets [..., length] outside spans, and the markers, by `ignore`.

    A span lies between a token `begin` and the next `end` of its row. A span without an `end` extends to the end of the
    row; an `end` without a `begin` closes a span from the start of the row. The dtype is kept unless `ignore` does not
    fit: then it is int64, or float64 for floats (which Modalities accepts too).

    Raises
    ------
    ValueError
        For a `begin` within a span and an `end` outside of one, with row and position.

    Warns
    -----
    DataWarning
        If there is no marker.
    """
    dtype = _wide_enough(targets.dtype, ignore)
    length = max(1, targets.shape[-1])
    begins = (targets == begin).reshape(-1)
    places = np.flatnonzero(begins | (targets == end).reshape(-1))
    if not places.size:
        _warn(f"neither the token {begin}, which begins a span, nor {end}, which ends one, is")
    opens, rows = begins[places], places // length
    turns = np.flatnonzero(rows[1:] != rows[:-1]) + 1
    same = opens[1:] == opens[:-1]
    same[turns - 1] = False
    if same.any():
        raise _misplaced(int(same.argmax()), places, opens, length, (begin, end))
    masked = np.full(targets.shape, ignore, dtype)
    if places.size:
        firsts, lasts = np.append(0, turns), np.append(turns - 1, len(places) - 1)
        firsts, lasts = firsts[~opens[firsts]], lasts[opens[lasts]]
        starts = np.concatenate([places[opens] + 1, rows[firsts] * length])
        stops = np.concatenate([places[~opens], (rows[lasts] + 1) * length])
        counts = _between(np.sort(starts), np.sort(stops), targets.size).reshape(targets.shape)
        np.copyto(masked, targets, where=counts)  # in half the time of np.where
    return masked


def _between(starts: Targets, stops: Targets, size: int) -> npt.NDArray[np.bool_]:
    """Return bool [size], true from each start to its stop, exclusive; spans are sorted and do not overlap."""
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[::2], bounds[1::2] = starts, stops
    runs = np.diff(bounds, prepend=0, append=size)
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def mask_targets_0_5_0(targets: Targets, begin: int, end: int, ignore: int) -> Targets:
    """Mask as Modalities 0.5.0: a batch without a `begin`, or without an `end`, is masked completely, with a warning.

    Raises ValueError for an `end` before a `begin`, also in a row that starts within a span.
    """
    dtype = _wide_enough(targets.dtype, ignore)
    begins, ends = targets == begin, targets == end
    for marker, found in ((begin, begins), (end, ends)):
        if not found.any():
            _warn(f"the token {marker}, which {'begins' if marker == begin else 'ends'} a span, is not")
            return np.full(targets.shape, ignore, dtype)
    steps = -ends.astype(np.int64)
    steps[..., 1:] += begins[..., :-1]
    depth = np.cumsum(steps, axis=-1)
    if depth.min() < 0 or depth.max() > 1:
        raise ValueError(
            "end mask token indicator is before begin mask token indicator in the target: compat='modalities-0.5' "
            "does not accept a block that starts within a span"
        )
    return np.where(depth == 1, targets, dtype.type(ignore))


def _wide_enough(dtype: np.dtype[Any], value: int) -> np.dtype[Any]:
    if dtype.kind == "f":
        return dtype if int(dtype.type(value)) == value else np.dtype(np.float64)
    if dtype.kind not in "iu":
        raise TypeError(f"targets have dtype {dtype}: integers are needed, or floats")
    limits = np.iinfo(dtype)
    return dtype if limits.min <= value <= limits.max else np.dtype(np.int64)


def _warn(what: str) -> None:
    text = (
        f"{what} in the targets: the batch does not count towards the loss. Is a blank part of the token in the text, "
        "or the block too short for an answer?"
    )
    warnings.warn(text, DataWarning, stacklevel=5)


def _misplaced(before: int, places: Targets, opens: Targets, length: int, markers: tuple[int, int]) -> ValueError:
    row, position = divmod(int(places[before + 1]), length)
    earlier = int(places[before]) % length
    if opens[before]:
        what = f"the token {markers[0]} begins a span within the one that position {earlier} begins"
    else:
        what = f"the token {markers[1]} ends a span that position {earlier} has ended"
    return ValueError(f"targets: row {row}, position {position}: {what}; spans cannot be nested")
