"""Recovers the index of a JSON Lines file from its lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.documents.create_index import all_lines
from fastpack.documents.json_lines import Rows
from fastpack.documents.raw_index_check import check_bounds, counts_characters, default_index_path
from fastpack.errors import FormatError
from fastpack.io import AnyPath, map_bytes, pickled_index


class RecoveredIndex(NamedTuple):
    """The correct index of a JSON Lines file, and what is wrong with the existing one (empty if nothing is)."""

    path: AnyPath
    rows: Rows
    problem: str
    lost_bytes: int


def recover_raw_index(raw: AnyPath) -> RecoveredIndex:
    """Compute the index of a JSON Lines file, without lines that are not JSON, and compare the existing index."""
    data, path = map_bytes(raw), default_index_path(raw)
    lines, are_json = all_lines(data)
    problem = _problem_of(path, data, lines, are_json)
    return RecoveredIndex(path, lines[are_json], problem, int(lines[~are_json, 1].sum()))


def _problem_of(path: AnyPath, data: npt.NDArray[np.uint8], lines: Rows, are_json: npt.NDArray[np.bool_]) -> str:
    """Describe what is wrong with an index; empty if all entries are lines and no line of JSON is missing."""
    if not path.exists():
        return "no index"
    try:
        index = pickled_index.decode(map_bytes(path), path, allow_trailing=False)
        check_bounds(index, len(data), path)
    except FormatError as error:
        return f"an index that cannot be used: {error}"
    if counts_characters(data, index):
        return "lengths of lines in characters"
    index = index[np.argsort(index[:, 0], kind="stable")]
    at = np.searchsorted(lines[:, 0], index[:, 0]).clip(max=max(0, len(lines) - 1))
    if len(index) and (not len(lines) or (lines[at] != index).any()):
        return "entries that are no lines"
    are_json = are_json.copy()
    are_json[at] = False
    return f"no entries for {np.count_nonzero(are_json)} lines" if are_json.any() else ""
