"""Labels of tokens that do not count in the loss are -100, as the loss masks next to token files say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.datasets.windows import Windows
from fastpack.io import MASK, is_remote
from fastpack.tokens.loss_mask import LossMask, has_mask, mask_of_file
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.token_segment import TokenSegment

IGNORED = -100
_FEW = 1024  # shards whose masks are looked for when a dataset is opened


class ShardMasks:
    """The loss masks of shards, each of which is read on first use; `whole` is that of all tokens instead."""

    def __init__(self, shards: Sequence[TokenSegment], whole: LossMask | None = None) -> None:
        self._shards = shards
        self._found: dict[int, LossMask | None] = {} if whole is None else {0: whole}

    def of(self, number: int) -> LossMask | None:
        """Return the mask of a shard; None if all of its tokens count."""
        if number not in self._found:
            self._found[number] = mask_of_file(self._shards[number].path)
        return self._found[number]


def find_masks(shards: Sequence[TokenSegment]) -> ShardMasks | None:
    """Return the masks of the shards of a dataset; None if they have none, as far as listing their folders tells.

    Shards of a manifest are not accessed here.
    """
    if isinstance(shards, list) and len(shards) == 1:
        return ShardMasks(shards) if has_mask(shards[0].path) else None
    folders = _folders(shards)
    if folders is not None:
        found = (name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder))
        if not any(name.endswith(MASK) for name in found):
            return None
    return ShardMasks(shards)


def _folders(shards: Sequence[TokenSegment]) -> set[str] | None:
    """Return the folders of shards; None for very many shards, and for shards in a store."""
    if len(shards) > _FEW:
        return None
    if isinstance(shards, ManifestShards):
        where = shards.manifest.path
        folder = os.path.dirname(where) or "."
        return None if is_remote(where) else {os.path.dirname(f"{folder}/{name}") for name in shards.manifest.names()}
    paths = [shard.path for shard in shards]
    return None if any(map(is_remote, paths)) else {os.path.dirname(path) or "." for path in paths}


def mask_labels(
    masks: ShardMasks,
    windows: Windows,
    index: npt.NDArray[np.int64],
    negative: bool,
    labels: npt.NDArray[Any],
    rows: npt.NDArray[np.int64] | None,
) -> None:
    """Set the labels [n, L] of windows of L + 1 tokens to -100 where the token does not count."""
    numbers, starts = windows.token_positions(index, negative)
    targets = range(len(index)) if rows is None else rows.tolist()
    length = labels.shape[1]
    for row, number, start in zip(targets, numbers.tolist(), starts.tolist(), strict=True):
        mask = masks.of(number)
        if mask is not None:
            labels[row][~mask.read(start + 1, start + 1 + length)] = IGNORED
