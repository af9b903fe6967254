"""The loss masks of the files of a dataset, each of which is read on first use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fastpack.io import MASK, is_remote
from fastpack.tokens.loss_mask import LossMask, has_mask, has_masks, mask_of_file, open_loss_mask
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import TokenSegment

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


class FileMasks:
    """The loss masks of numbered token files, each of which is read on first use.

    Attributes
    ----------
    exist
        Whether a file has a mask.
    """

    def __init__(self, files: Mapping[int, TokenFile]) -> None:
        self._files = files
        self._found: dict[int, LossMask | None] = {k: None for k, file in files.items() if not has_masks(file)}
        self.exist = len(self._found) < len(files)

    def of(self, number: int) -> LossMask | None:
        """Return the mask of a file; None if all of its tokens count."""
        if number not in self._found:
            self._found[number] = open_loss_mask(self._files[number])
        return self._found[number]


def find_masks(shards: Sequence[TokenSegment]) -> ShardMasks | None:
    """Return the masks of the shards of a dataset; None if they have none, as far as listing their folders tells.

    Shards of a manifest are not accessed here.
    """
    if isinstance(shards, list) and len(shards) == 1:
        return ShardMasks(shards) if has_mask(shards[0].path) else None
    if not isinstance(shards, ManifestShards) and any(is_remote(shard.path) for shard in shards):
        return None
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
