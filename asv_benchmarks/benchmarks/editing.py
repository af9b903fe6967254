"""Merging, shuffling, chunking and filtering compared with a copy of the bytes and with Modalities."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastpack.tokens.edit.chunk import create_shuffled_dataset_chunk
from fastpack.tokens.edit.filter import KeepRules, filter_packed_data
from fastpack.tokens.edit.merge import merge_packed_data
from fastpack.tokens.edit.shuffle import shuffle_jsonl_data, shuffle_tokenized_data
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter

from .common import CORPUS_SEED, document_lengths, ratio, row, token_stream

MEBIBYTE = 1 << 20


def copy(sources: list[Path], target: Path) -> None:
    """Copy the sources one after the other, as `dd bs=1M conv=fsync`."""
    block = bytearray(MEBIBYTE)
    with open(target, "wb", buffering=0) as output:
        for source in sources:
            with open(source, "rb", buffering=0) as file:
                while n_bytes := file.readinto(block):
                    output.write(memoryview(block)[:n_bytes])
        os.fsync(output.fileno())


def write_packed(path: Path, n_tokens: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = document_lengths(n_tokens, rng)
    with PackedWriter(path, 2) as writer:
        writer.append_many(token_stream(int(lengths.sum()), "uint16", 0, rng), lengths)


class Editing:
    """256 MiB in four packed files of 2-byte tokens; log-normal document lengths with a mean of 800 tokens."""

    timeout = 300
    n_tokens = 32 << 20  # per file
    rounds = 7

    def setup(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.sources = [self.folder / f"{number}.pbin" for number in range(4)]
        for number, path in enumerate(self.sources):
            write_packed(path, self.n_tokens, CORPUS_SEED + number)
        self.target, self.copied = self.folder / "out", self.folder / "copy"

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def compare(self, ours: Callable[[], object], sources: list[Path]) -> float:
        """Return the speed of `ours` (bytes of `target` per CPU second) divided by that of a copy of `sources`."""

        def fresh(function: Callable[[], object], target: Path) -> Callable[[], None]:
            def run() -> None:
                target.unlink(missing_ok=True)
                function()

            return run

        limit = fresh(lambda: copy(sources, self.copied), self.copied)
        share = ratio(fresh(ours, self.target), limit, rounds=self.rounds, clock=time.process_time)
        return share * self.target.stat().st_size / self.copied.stat().st_size

    @row("`merge`, four files", "x dd (bs=1M, fsync)")
    def track_merge(self) -> float:
        return self.compare(lambda: merge_packed_data(self.sources, self.target), self.sources)

    @row("`shuffle`, packed", "x dd (bs=1M, fsync)")
    def track_shuffle(self) -> float:
        ours = lambda: shuffle_tokenized_data(self.sources[0], self.target, seed=1)  # noqa: E731
        return self.compare(ours, self.sources[:1])

    @row("`shuffle`, JSONL of 2 kB lines", "x dd (bs=1M, fsync)")
    def track_shuffle_lines(self) -> float:
        source = self.folder / "a.jsonl"
        lengths = document_lengths(self.n_tokens, np.random.default_rng(CORPUS_SEED)) * 2
        text = np.full(int(lengths.sum()), ord("a"), np.uint8)
        text[np.cumsum(lengths) - 1] = ord("\n")
        source.write_bytes(text)
        return self.compare(lambda: shuffle_jsonl_data(source, self.target, seed=1), [source])

    @row("`chunk`, one of four chunks of four files", "x dd (bs=1M, fsync) of the same size")
    def track_chunk(self) -> float:
        ours = lambda: create_shuffled_dataset_chunk(self.sources, self.target, 1, 4, global_seed=1)  # noqa: E731
        return self.compare(ours, self.sources[:1])

    @row("`filter` by length, keeps two of three documents", "x dd (bs=1M, fsync) of the same size")
    def track_filter_length(self) -> float:
        rules = KeepRules(max_length=1300)
        return self.compare(lambda: filter_packed_data(self.sources[0], self.target, rules), self.sources[:1])

    @row("`filter` by a token, reads all tokens", "x dd (bs=1M, fsync)")
    def track_filter_token(self) -> float:
        rules = KeepRules(lacks=(12_345,))
        return self.compare(lambda: filter_packed_data(self.sources[0], self.target, rules), self.sources[:1])


class TokenByToken:
    """Compared with one `int.to_bytes` per token, as Modalities 0.5.0 writes chunks and filtered files.

    Modalities, measured by hand on the same files, takes 207 times the CPU time of fastpack for a chunk, 145 times for
    a filter, 13 times for its other filter (without Python code per token), 7 times for a merge, and 4 times for a
    shuffle.
    """

    timeout = 300
    n_tokens = 2 << 20

    def setup(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.source, self.target = self.folder / "a.pbin", self.folder / "out"
        write_packed(self.source, self.n_tokens, CORPUS_SEED)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def rewrite(self, keep: Callable[[int], bool], shuffle: bool) -> None:
        with PackedFile(self.source) as file:
            documents = [file[i] for i in range(len(file)) if keep(i)]
        if shuffle:
            np.random.default_rng(1).shuffle(documents)  # type: ignore[arg-type]
        contents = [b"".join(token.to_bytes(2, "little") for token in document.tolist()) for document in documents]
        index = [(0, len(content)) for content in contents]
        (self.folder / "peer").write_bytes(b"".join(contents) + pickle.dumps(index))

    @row("`chunk`", "x a Python call per token, as Modalities")
    def track_chunk(self) -> float:
        def ours() -> None:
            create_shuffled_dataset_chunk([self.source], self.target, 0, 1, "override", 1)

        return ratio(ours, lambda: self.rewrite(lambda _i: True, True), rounds=3, clock=time.process_time)

    @row("`filter` by a Python function, keeps every second document", "x a Python call per token, as Modalities")
    def track_filter(self) -> float:
        def ours() -> None:
            keep = lambda i, tokens: i % 2 == 0 and len(tokens) > 0  # noqa: E731
            filter_packed_data(self.source, self.target, keep, if_exists="overwrite")

        return ratio(ours, lambda: self.rewrite(lambda i: i % 2 == 0, False), rounds=3, clock=time.process_time)
