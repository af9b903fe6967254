"""Writing token files: the part that is the same for all formats with tokens in one contiguous run."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Described, facts
from fastpack.errors import FormatError
from fastpack.io import AtomicFile, Bytes, ExistencePolicy, PathLike, TargetExists, may_write
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.token_file import Rows, Run, check_mask
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, recorded
from fastpack.tokens.writer_context import CommitOnSuccess

TOKEN_SIZES = (1, 2, 4)
BUFFER_BYTES = 1 << 19  # stays in the second-level cache; 1 MiB is 15 % slower


class TokenRangeError(ValueError):
    """A token does not fit the token size.

    Attributes
    ----------
    token
        The value of the token.
    position
        Its position in the tokens of the call, from 0.
    token_size_in_bytes
        The token size of the file.
    """

    def __init__(self, token: int, position: int, token_size_in_bytes: int, sign: str = "unsigned") -> None:
        self.token, self.position, self.token_size_in_bytes = token, position, token_size_in_bytes
        super().__init__(f"token {token} at position {position} does not fit {token_size_in_bytes} {sign} byte(s)")

    def __reduce__(self) -> tuple[type[TokenRangeError], tuple[int, int, int]]:
        return type(self), (self.token, self.position, self.token_size_in_bytes)


class BufferedTokenWriter(CommitOnSuccess, Described):
    """Base of writers of little-endian tokens, unsigned by default, between a header and what follows them.

    The file is complete under its name, or not there. A subclass gives the size of its header (`header_bytes`) and
    writes the header, and what follows the tokens, in `_finish`.
    """

    _subject = "path"
    _shown = facts(
        documents="n_documents",
        tokens="n_tokens",
        token_size_in_bytes="token_size_in_bytes",
        closed=lambda self: self._output is None,
    )

    header_bytes: ClassVar[int]
    token_sizes: ClassVar[tuple[int, ...]] = TOKEN_SIZES

    @accept_aliases(file_existence_policy="if_exists")
    def __init__(
        self,
        path: PathLike,
        token_size_in_bytes: int,
        *,
        if_exists: ExistencePolicy = "error",
        signed: bool = False,
    ) -> None:
        if token_size_in_bytes not in self.token_sizes:
            *some, last = map(str, self.token_sizes)
            raise ValueError(f"token size {token_size_in_bytes!r}: tokens take {', '.join(some)} or {last} bytes")
        if not may_write(path, if_exists):
            raise TargetExists(f"{os.fspath(path)} exists and is to be kept: nothing to write")
        self.path = os.fspath(path)
        self.token_size_in_bytes = token_size_in_bytes
        self.n_tokens = 0
        self.fingerprint: TokenizerFingerprint | None = None
        self.mask: MaskBits | None = None
        self._lengths = array("q")  # of the documents, in tokens
        self._dtype = np.dtype(f"<{'i' if signed else 'u'}{token_size_in_bytes}")
        self._buffer = np.empty(BUFFER_BYTES // token_size_in_bytes, self._dtype)
        self._filled = 0  # tokens in the buffer
        self._policy: ExistencePolicy = if_exists
        self._output: AtomicFile | None = self._open(path)

    def _open(self, path: PathLike) -> AtomicFile:
        output = AtomicFile(path, policy=self._policy)
        output.write(bytes(self.header_bytes))
        return output

    @property
    def n_documents(self) -> int:
        """The number of documents appended so far."""
        return len(self._lengths)

    def reserve(self, n_tokens: int) -> None:
        """Allocate disk space for the tokens that will be appended.

        Parameters
        ----------
        n_tokens
            Number of tokens that will be appended in all.

        Raises
        ------
        OSError
            If the disk is full.
        """
        if self._output is not None:
            self._output.reserve(n_tokens * self.token_size_in_bytes)

    def append(self, tokens: npt.ArrayLike) -> None:
        """Append one document.

        Parameters
        ----------
        tokens
            Integers [n_tokens], the end-of-document token included.

        Raises
        ------
        TokenRangeError
            If a token does not fit the token size. Nothing is appended then.
        """
        flat = self._checked(tokens)
        self._put(flat)
        self._lengths.append(len(flat))

    def append_many(self, flat_tokens: npt.ArrayLike, lengths: npt.ArrayLike) -> None:
        """Append several documents.

        Parameters
        ----------
        flat_tokens
            The tokens of all documents, concatenated: integers [n_tokens].
        lengths
            The length of each document in tokens: integers [n_documents].

        Raises
        ------
        TokenRangeError
            If a token does not fit the token size. Nothing is appended then.
        ValueError
            If a length is negative, or the lengths do not sum to the number of tokens. Nothing is appended then.
        """
        n_each = checked_lengths(lengths, np.size(flat_tokens))
        flat = self._checked(flat_tokens)
        self._put(flat)
        self._lengths.frombytes(n_each.tobytes())

    def append_bytes(self, data: Bytes, lengths_in_tokens: npt.ArrayLike) -> None:
        """Append documents whose tokens are already encoded as little-endian unsigned integers of the token size.

        Parameters
        ----------
        data
            The encoded tokens of all documents, concatenated.
        lengths_in_tokens
            The length of each document in tokens: integers [n_documents].

        Raises
        ------
        ValueError
            As `append_many`, and if the data is not a whole number of tokens.
        """
        tokens = np.frombuffer(data, np.uint8)
        if len(tokens) % self.token_size_in_bytes:
            raise ValueError(f"{len(tokens)} bytes are no whole number of tokens of {self.token_size_in_bytes} bytes")
        self.append_many(tokens.view(self._dtype), lengths_in_tokens)

    def append_blocks(self, blocks: Iterable[npt.NDArray[Any]], lengths: npt.NDArray[np.int64]) -> None:
        """Append documents whose tokens arrive in blocks, which may divide documents. Every error aborts the writer.

        Parameters
        ----------
        blocks
            Integers [n_tokens] each.
        lengths
            The length of each document in tokens: int64 [n_documents].

        Raises
        ------
        TokenRangeError
            If a token does not fit the token size.
        ValueError
            If the lengths do not sum to the number of tokens.
        """
        with self._documents(lengths):
            for block in blocks:
                self._put(self._checked(block))

    def append_copies(self, runs: Iterable[Run], lengths: npt.NDArray[np.int64]) -> None:
        """Append documents whose tokens are copied from local files, encoded as this file stores them.

        The system copies them, which takes half the CPU time of `append_blocks`. Every error aborts the writer.

        Parameters
        ----------
        runs
            File, offset in bytes and number of bytes of each piece, or a block as for `append_blocks`; each may end
            within a document.
        lengths
            The length of each document in tokens: int64 [n_documents].

        Raises
        ------
        FormatError
            If a file ends before its piece does.
        ValueError
            As `append_blocks`.
        """
        with self._documents(lengths):
            for run in runs:
                if isinstance(run, tuple):
                    self._copy_piece(*run)
                else:
                    self._put(self._checked(run))

    @contextlib.contextmanager
    def _documents(self, lengths: npt.NDArray[np.int64]) -> Iterator[None]:
        """Append documents of these lengths after the with block has appended their tokens; abort on every error."""
        before = self.n_tokens
        try:
            self._check_documents(lengths)
            yield
            if self.n_tokens - before != int(lengths.sum()):
                raise ValueError(f"lengths that sum to {int(lengths.sum())} for {self.n_tokens - before} tokens")
        except BaseException:
            self._fail()
            raise
        self._lengths.frombytes(lengths.tobytes())

    def _check_documents(self, lengths: npt.NDArray[np.int64]) -> None:
        """Raise ValueError for documents that the format cannot store."""

    def _copy_piece(self, path: str, offset: int, n_bytes: int) -> None:
        if self._output is None:
            raise ValueError(f"{self.path}: the writer is closed")
        self._flush()
        n_copied = self._output.copy_from(path, offset, n_bytes)
        if n_copied < n_bytes:
            found = f"the end of the file after {offset + n_copied} bytes"
            raise FormatError(path, offset + n_copied, found, f"tokens up to byte {offset + n_bytes}")
        self.n_tokens += n_bytes // self.token_size_in_bytes

    def append_tokens(self, flat_tokens: npt.ArrayLike) -> None:
        """Append tokens whose documents `append_documents` describes.

        Parameters
        ----------
        flat_tokens
            Integers [n_tokens].

        Raises
        ------
        TokenRangeError
            If a token does not fit the token size. Nothing is appended then.
        """
        self._put(self._checked(flat_tokens))

    def append_documents(self, blocks: Iterable[Rows]) -> None:
        """Add documents in tokens that `append_tokens` appended.

        Parameters
        ----------
        blocks
            Start in the file and length of documents, in tokens: int64 [k, 2] each.

        Raises
        ------
        ValueError
            If a document does not begin where the preceding one ends: only lengths are stored.
        """
        end = sum(self._lengths)
        for rows in blocks:
            ends = rows.sum(axis=1)
            if len(rows) and (int(rows[0, 0]) != end or (rows[1:, 0] != ends[:-1]).any()):
                raise ValueError(f"{self.path}: documents that overlap or leave gaps cannot be stored in this format")
            self._lengths.frombytes(np.ascontiguousarray(rows[:, 1]).tobytes())
            end = int(ends[-1]) if len(ends) else end

    def _checked(self, tokens: npt.ArrayLike) -> npt.NDArray[Any]:
        if self._output is None:
            raise ValueError(f"{self.path}: the writer is closed")
        flat = np.asarray(tokens)
        if flat.ndim != 1:
            raise ValueError(f"tokens of {flat.ndim} dimensions, expected one")
        if flat.size == 0:
            return np.empty(0, self._dtype)
        if flat.dtype.kind not in "iu":
            raise TypeError(f"tokens of dtype {flat.dtype}, expected integers")
        if not np.can_cast(flat.dtype, self._dtype):
            check_range(flat, self._dtype)
        return flat

    def _put(self, flat: npt.NDArray[Any]) -> None:
        assert self._output is not None
        try:
            if flat.dtype == self._dtype and flat.nbytes >= BUFFER_BYTES:
                self._flush()
                self._output.write(np.ascontiguousarray(flat))
            else:
                self._copy(flat)
        except BaseException:
            self._fail()  # the state of the file is unknown: close() must not publish it
            raise
        self.n_tokens += len(flat)

    def _copy(self, flat: npt.NDArray[Any]) -> None:
        done = 0
        while done < len(flat):
            if self._filled == len(self._buffer):
                self._flush()
            n_tokens = min(len(flat) - done, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + n_tokens] = flat[done : done + n_tokens]
            self._filled += n_tokens
            done += n_tokens

    def _flush(self) -> None:
        assert self._output is not None
        self._output.write(self._buffer[: self._filled])
        self._filled = 0

    def close(self) -> None:
        """Finish the file and give it its name. Does nothing if the writer is closed or aborted."""
        if self._output is None:
            return
        try:
            self._flush()
            self._finish(self._output)
            check_mask(self)
            with recorded(self._output, self.fingerprint, self.mask):
                self._commit(self._output)
        except BaseException:
            self._fail()
            raise
        self._output = None

    def _finish(self, output: AtomicFile) -> None:
        """Write what follows the tokens, and the header before them."""
        raise NotImplementedError

    def _commit(self, output: AtomicFile) -> None:
        output.commit()

    def _fail(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Remove what was written and keep an existing file of this name. Does nothing if the writer is closed."""
        if self._output is not None:
            self._output.abort()
            self._output = None


def checked_lengths(lengths: npt.ArrayLike, n_tokens: int) -> npt.NDArray[np.int64]:
    """Return document lengths as int64 [n]; raise unless they are non-negative and sum to `n_tokens`."""
    given = np.asarray(lengths)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"lengths of dtype {given.dtype}, expected integers")
    checked = given.astype(np.int64)
    if checked.ndim != 1:
        raise ValueError(f"lengths of {checked.ndim} dimensions, expected one")
    # Each is at most n_tokens, so the sum of fewer than 2^63 / n_tokens of them cannot overflow.
    if len(checked) and (checked.min() < 0 or checked.max() > n_tokens):
        position = int(((checked < 0) | (checked > n_tokens)).argmax())
        raise ValueError(f"length {checked[position]} of document {position}, with {n_tokens} tokens in all")
    if int(checked.sum()) != n_tokens:
        raise ValueError(f"lengths that sum to {int(checked.sum())} for {n_tokens} tokens")
    return checked


def check_range(flat: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Raise TokenRangeError for the first token that is negative or that `dtype` cannot hold."""
    limit = int(np.iinfo(dtype).max)
    # The limit is all ones: the OR of all tokens exceeds it, or is negative, exactly if one of them is or does.
    if 0 <= int(np.bitwise_or.reduce(flat)) <= limit:
        return
    position = (
        int(((flat < 0) | (flat > limit)).argmax()) if limit <= np.iinfo(flat.dtype).max else int((flat < 0).argmax())
    )
    sign = "unsigned" if dtype.kind == "u" else "signed"
    raise TokenRangeError(int(flat[position]), position, dtype.itemsize, sign)
