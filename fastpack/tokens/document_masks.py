"""The loss masks of documents of several token files, in the order in which they are written to another file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.tokens.loss_mask import LossMask, open_loss_mask
from fastpack.tokens.mask_bits import BLOCK_TOKENS, MaskBits
from fastpack.tokens.token_file import BLOCK_ROWS, Rows, TokenFile

Lengths = npt.NDArray[np.int64]


def corpus_mask(files: Sequence[TokenFile]) -> MaskBits | None:
    """Return the loss mask of all documents of open files, or of all tokens where documents are unknown.

    None without a mask.
    """
    masks = [open_loss_mask(tokens) for tokens in files]
    if not any(mask is not None for mask in masks):
        return None
    bits = MaskBits()
    for tokens, mask in zip(files, masks, strict=True):
        whole = tokens.n_documents is None or tokens.is_contiguous()
        for start, length in [(0, tokens.n_tokens)] if whole else tokens.document_rows().tolist():
            for first in range(start, start + length, BLOCK_TOKENS):
                end = min(first + BLOCK_TOKENS, start + length)
                bits.append(np.ones(end - first, np.bool_) if mask is None else mask.read(first, end))
    return bits


class DocumentMasks:
    """The loss masks of documents, numbered over all files; documents of a file without a mask count completely."""

    def __init__(self, files: Sequence[TokenFile] = ()) -> None:
        self._files: list[tuple[LossMask | None, Rows | None, int]] = []  # mask, its documents, their number
        self._kept = [np.empty(0, np.int64)]
        for tokens in files:
            self.add(tokens)

    def add(self, tokens: TokenFile, first: int = 0, end: int | None = None, *, whole: bool = False) -> None:
        """Add the documents [first, end) of an open file; whole: all its tokens, as one document."""
        mask = open_loss_mask(tokens)
        if whole:
            self._files.append((mask, np.array([[0, tokens.n_tokens]]), 1))
            return
        rows = None if mask is None else tokens.document_rows(first, end)
        n_documents = len(range(tokens.n_documents or 0)[first:end])
        self._files.append((mask, rows, n_documents))

    @property
    def exist(self) -> bool:
        """Whether any of the files has a mask."""
        return any(mask is not None for mask, _, _ in self._files)

    def bits(self, order: npt.NDArray[Any] | None = None, lengths: Lengths | None = None) -> MaskBits | None:
        """Return the mask of the documents numbered `order` (None: all), concatenated; None if no file has one.

        lengths: of all documents, in tokens; needed for files without a mask, unless they are whole.
        """
        if not self.exist:
            return None
        firsts = np.cumsum([0, *(n for _, _, n in self._files)])
        numbers = np.arange(int(firsts[-1])) if order is None else order
        bits = MaskBits()
        for first in range(0, len(numbers), BLOCK_ROWS):
            chosen = numbers[first : first + BLOCK_ROWS]
            files = np.searchsorted(firsts, chosen, "right") - 1
            pairs = zip(files.tolist(), chosen.tolist(), strict=True)
            bits.append(np.concatenate([self._piece(file, i, i - int(firsts[file]), lengths) for file, i in pairs]))
        return bits

    def keep(self, numbers: npt.NDArray[np.int64]) -> None:
        """Note documents for `kept`."""
        if self.exist:
            self._kept.append(numbers)

    def kept(self) -> MaskBits | None:
        """Return the mask of the documents that were noted; None if no file has one."""
        return self.bits(np.concatenate(self._kept))

    def _piece(self, file: int, number: int, local: int, lengths: Lengths | None) -> npt.NDArray[np.bool_]:
        mask, rows, _ = self._files[file]
        if rows is None:
            assert lengths is not None
            return np.ones(int(lengths[number]), np.bool_)
        start, length = rows[local].tolist()
        return np.ones(length, np.bool_) if mask is None else mask.read(start, start + length)
