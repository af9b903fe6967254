"""The loss masks of the files of a dataset, each of which is read on first use."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

from fastpack.errors import DataWarning
from fastpack.io import LOSS, MASK, has_listed, is_remote
from fastpack.tokens.loss_mask import LossMask, find_mask, has_masks, list_folders, mask_of_file, open_loss_mask
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import TokenSegment

_SUFFIXES = (MASK, LOSS)
_FEW = 1024  # shards whose masks are looked for when a dataset is opened


class ShardMasks:
    """The loss masks of shards, each of which is read on first use; `whole` is that of all tokens instead."""

    def __init__(self, shards: Sequence[TokenSegment], whole: LossMask | None = None) -> None:
        self._shards = shards
        self._found: dict[int, LossMask | None] = {} if whole is None else {0: whole}
        self._is_noted = False

    def of(self, number: int) -> LossMask | None:
        """Return the mask of a shard; None if all of its tokens count."""
        if number not in self._found:
            self._found[number] = mask_of_file(self._shards[number].path)
        return self._found[number]

    def note_unused(self, remedy: str) -> None:
        """Warn, once, that samples without labels do not show which tokens count. Shards in stores are not asked."""
        if self._is_noted:
            return
        self._is_noted = True
        paths = (self._shards[number].path for number in range(min(len(self._shards), _FEW)))
        masked = next((path for path in paths if not is_remote(path) and find_mask(path) is not None), None)
        if masked is not None or self._found.get(0) is not None:
            what = "the file" if masked is None else masked
            text = f"samples without labels do not show which tokens of {what} count in the loss: {remedy}"
            warnings.warn(text, DataWarning, stacklevel=5)


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
        return None if find_mask(shards[0].path) is None else ShardMasks(shards)
    if isinstance(shards, ManifestShards):
        folders = _manifest_folders(shards)
    else:
        paths = [shard.path for shard in shards]
        list_folders(paths)
        folders = {os.path.dirname(path) or "." for path in paths}
    return ShardMasks(shards) if folders is None or any(map(_may_have_masks, folders)) else None


def _manifest_folders(shards: ManifestShards) -> set[str] | None:
    """Return the folders of the shards of a manifest; None for very many shards."""
    folder = os.path.dirname(shards.manifest.path) or "."
    return None if len(shards) > _FEW else {os.path.dirname(f"{folder}/{name}") for name in shards.manifest.names()}


def _may_have_masks(folder: str) -> bool:
    """Return whether a folder has loss masks, or links to files that may have one; True if it cannot be listed."""
    if is_remote(folder):
        return has_listed(folder, _SUFFIXES)
    if not os.path.isdir(folder):  # of a manifest
        return False
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(_SUFFIXES) or entry.is_symlink() for entry in entries)
