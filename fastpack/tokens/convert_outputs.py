"""The outputs of a conversion: one token file, or shards that get their names together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import spoken
from fastpack.io import (
    CHECKSUMS,
    LOSS,
    SIDES,
    AnyPath,
    ExistencePolicy,
    PathLike,
    Progress,
    TargetExists,
    as_path,
    counting,
    exists,
    is_remote,
    may_write,
    remove,
    same_file,
)
from fastpack.io.atomic import OVERWRITE
from fastpack.io.atomic_folder import AtomicSet
from fastpack.tokens.chunk_writer import ChunkedTokenWriter
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.interop_formats import FOLDER_FORMATS, first_output, output_files, output_path
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.shard_plan import Shard, cut_documents, cut_tokens, existing_shards, shard_paths
from fastpack.tokens.token_corpus import TokenCorpus
from fastpack.tokens.token_file import TokenFile, TokenFormat
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint


def output_format(output: PathLike, name: str | None) -> TokenFormat:
    """Return the format called `name`, else that of the suffix of the output; ValueError if it cannot be written."""
    if name is not None:
        row = format_named(name)
        if row.create is None:
            raise ValueError(f"the format {name} is not written by convert")
        return row
    suffix = as_path(output).suffix
    found = next((row for row in FORMATS if row.create is not None and suffix in row.suffixes), None)
    if found is None:
        names = ", ".join(row.name for row in FORMATS if row.create is not None)
        how = f"pass {spoken('format=')}, one of {names}"
        raise ValueError(f"{os.fspath(output)}: its suffix is not that of a format; {how}")
    return found


@dataclass(frozen=True)
class Outputs:
    """Where and how a corpus is written.

    Attributes
    ----------
    row, target, policy
        The format, the path (completed by `output_path`), and what to do with existing files.
    shard_tokens
        The largest number of tokens of a shard; None for one output. In formats that are folders of chunks, it limits
        the chunks.
    """

    row: TokenFormat
    target: AnyPath
    policy: ExistencePolicy
    shard_tokens: int | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether there are several outputs with numbers."""
        return self.shard_tokens is not None and self.row.name not in FOLDER_FORMATS

    def existing(self) -> list[AnyPath]:
        """Return the existing outputs: of shards, also those of an earlier run with more of them."""
        if self.is_sharded:
            return existing_shards(self.row.name, self.target)
        return [self.target] if exists(first_output(self.row.name, self.target)) else []

    def is_kept(self) -> bool:
        """Return whether outputs exist and are kept; TargetExists by the policy "error"."""
        found = self.existing()
        first = found[0] if found else self.target
        return not may_write(first_output(self.row.name, first), self.policy)

    def check_sources(self, files: Sequence[TokenFile], eos_token_id: int | None) -> None:
        """Raise ValueError if an existing output is a source, or the format needs unknown document boundaries."""
        written = [first_output(self.row.name, path) for path in self.existing()]
        if written and self.is_sharded and self.policy == "error":
            raise TargetExists(f"{written[0]} exists. {spoken(OVERWRITE)} to overwrite it.")
        for tokens in files:
            if self.row.stores_documents and eos_token_id is None and tokens.n_documents is None:
                name = self.row.name
                raise ValueError(
                    f"{tokens.path}: the document boundaries are unknown, and {name} stores them: "
                    f"pass {spoken('eos_token_id')}"
                )
            for source in {tokens.path, *(segment.path for segment in islice(tokens.segments(), 1))}:
                for path in written:
                    if exists(source) and same_file(source, path):
                        raise ValueError(f"{path} is the output and belongs to a source: choose another output")

    def write(
        self,
        corpus: TokenCorpus,
        lengths: npt.NDArray[np.int64] | None,
        dtype: np.dtype[Any],
        fingerprint: TokenizerFingerprint | None,
        mask: MaskBits | None,
        progress: Progress | None,
    ) -> list[AnyPath]:
        """Write documents of these lengths, int64 [n], with the tokens of a corpus; return the paths of the outputs.

        fingerprint: of their tokenizer. mask: the loss mask of all tokens.
        """
        if not (self.row.stores_documents and lengths is not None):
            lengths = None
        progress = counting(progress, None if lengths is None else len(lengths), corpus.n_tokens)
        shards = self._shards(corpus.n_tokens, lengths)
        paths = shard_paths(self.row.name, self.target, len(shards)) if self.is_sharded else [self.target]
        with self._placed(paths) as places:
            for shard, place in zip(shards, places, strict=True):
                assert self.row.create is not None
                n_each = np.array([shard.end - shard.start]) if lengths is None else lengths[shard.first : shard.stop]
                with self.row.create(place, dtype, self.policy) as writer:
                    writer.fingerprint = fingerprint
                    writer.mask = None if mask is None else mask.part(shard.start, shard.end)
                    writer.reserve(shard.end - shard.start)
                    if isinstance(writer, ChunkedTokenWriter):
                        writer.chunk_tokens = self.shard_tokens
                    writer.append_copies(corpus.runs(shard.start, shard.end, dtype, progress), n_each)
        return [output_path(self.row.name, path) for path in paths]

    def _shards(self, n_tokens: int, lengths: npt.NDArray[np.int64] | None) -> list[Shard]:
        if self.shard_tokens is None or not self.is_sharded:
            return [Shard(0, n_tokens, 0, 0 if lengths is None else len(lengths))]
        return cut_tokens(n_tokens, self.shard_tokens) if lengths is None else cut_documents(lengths, self.shard_tokens)

    @contextlib.contextmanager
    def _placed(self, paths: Sequence[AnyPath]) -> Iterator[list[AnyPath]]:
        """Yield where to write the outputs, which get their names, or are removed, together."""
        if not self.is_sharded:
            yield list(paths)
        elif is_remote(self.target):
            yield from self._uploaded(paths)
        else:
            together = AtomicSet(self.target)
            try:
                yield [as_path(together.staged(path)) for path in paths]
                found = self.existing()
                if found and self.policy in ("error", "skip"):
                    raise TargetExists(f"{found[0]} was written by another process in the meantime")
                old = [name for path in found for name in reversed(_names(self.row.name, path))]
                together.commit([name for path in paths for name in _names(self.row.name, path)], old)
            finally:
                together.abort()

    def _uploaded(self, paths: Sequence[AnyPath]) -> Iterator[list[AnyPath]]:
        """Yield the paths themselves; remove new objects after an error, and old ones that have no successor."""
        found = self.existing()
        try:
            yield list(paths)
        except BaseException:
            for path in set(paths) - set(found):
                _remove(self.row.name, path)
            raise
        for path in set(found) - set(paths):
            _remove(self.row.name, path)


def _names(name: str, path: AnyPath) -> list[str]:
    """Return the names of the files of an output, in the order in which they appear; an index comes last."""
    tokens, *sides = output_files(name, path)
    before = [f"{tokens.name}{suffix}" for suffix in (SIDES if name != "datatrove" else (*SIDES, LOSS))]
    return [*before, tokens.name, *(side.name for side in sides), f"{tokens.name}{CHECKSUMS}"]


def _remove(name: str, path: AnyPath) -> None:
    for file in reversed(_names(name, path)):
        remove(path.parent / file)
