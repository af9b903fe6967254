"""Conversion between token formats compared with a copy of the bytes, and `pack` into Megatron's format."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from fastpack.packing.pack import pack
from fastpack.tokens.convert import convert

from .common import CORPUS_SEED, ratio, row
from .editing import copy, write_packed
from .pack import standard_library_texts, write_jsonl


class Conversion:
    """128 MiB of 2-byte tokens in documents of log-normal length with a mean of 800 tokens.

    MDS has a header before each document, so that the system cannot copy its tokens in large runs. Tried: encoding in a
    buffer (0.55 of the copy), encoding from a map of the source (0.66), gathered writes of headers and tokens from a
    buffer (0.5 to 0.59), and gathered writes from a map of the source (0.68 to 0.71, used). More than half of its time
    is the `pwritev` of pieces of 1.6 KB.
    """

    timeout = 300
    params = ("megatron", "datatrove", "litdata", "mds", "llmc")
    param_names = ("format",)

    def setup(self, _format: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.source = self.folder / "a.pbin"
        write_packed(self.source, 64 << 20, CORPUS_SEED)

    def teardown(self, _format: str) -> None:
        shutil.rmtree(self.folder)

    @row("`convert`, packed to", "x dd (bs=1M, fsync)")
    def track_convert(self, name: str) -> float:
        output, copied = self.folder / "out", self.folder / "copy"

        def ours() -> None:
            convert(self.source, output, format=name, if_exists="overwrite")

        return ratio(ours, lambda: copy([self.source], copied), rounds=7, clock=time.process_time)


class MegatronBuilder:
    """Packing the standard library with the tokenizer `bytes`; Megatron's builder writes the same documents.

    megatron-core needs torch, which is too large for the environments of asv: install both where report.py runs.
    """

    timeout = 300

    def setup(self) -> None:
        try:
            from megatron.core.datasets import indexed_dataset
        except ImportError:
            reason = "megatron-core is not installed: pip install torch megatron-core"
            raise NotImplementedError(reason) from None  # asv skips the benchmark
        self.builder = indexed_dataset.IndexedDatasetBuilder
        self.folder = Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @row("`pack --format megatron`, built-in bytes, one process", "x Megatron's builder, without a tokenizer")
    def track_builder(self) -> float:
        source = self.folder / "text.jsonl"
        texts = standard_library_texts(20_000_000)
        write_jsonl(source, texts)
        documents = [np.frombuffer(text.encode() + b"\0", np.uint8).astype(np.uint16) for text in texts]
        theirs = self.folder / "theirs"

        def ours() -> None:
            pack(
                source,
                self.folder / "ours",
                tokenizer="bytes",
                format="megatron",
                num_workers=1,
                if_exists="overwrite",
            )

        def build() -> None:
            builder = self.builder(f"{theirs}.bin", dtype=np.uint16)
            for document in documents:
                builder.add_document(document, [len(document)])
            builder.finalize(f"{theirs}.idx")

        return ratio(ours, build, rounds=7, clock=time.process_time)
