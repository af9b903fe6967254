"""Packing a JSONL file compared with the tokenizer alone on the same texts and with a copy of the bytes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastpack.packing.pack import pack, pack_encoded_data

from .common import CORPUS_SEED, ratio, row

EOD = "<|endoftext|>"


def standard_library_texts(n_characters: int) -> list[str]:
    """Return the sources of the standard library, cut into documents of log-normal length."""
    folder = Path(os.__file__).parent
    source = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in sorted(folder.glob("*.py")))
    rng = np.random.default_rng(CORPUS_SEED)
    texts: list[str] = []
    start = done = 0
    while done < n_characters:
        length = max(60, int(rng.lognormal(7.5, 1.0)))
        start = 0 if start + length > len(source) else start
        texts.append(source[start : start + length])
        start, done = start + length, done + length
    return texts


def write_jsonl(path: Path, texts: list[str]) -> None:
    lines = [json.dumps({"id": i, "text": text}, ensure_ascii=False).encode() for i, text in enumerate(texts)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    lengths = np.array([len(line) for line in lines])
    offsets = np.cumsum(lengths + 1) - lengths - 1
    path.with_suffix(".idx").write_bytes(pickle.dumps(list(zip(offsets.tolist(), lengths.tolist(), strict=True))))


class Pack:
    timeout = 300

    def setup(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def pack(self, variant_key: str, **config: str) -> None:
        settings = {
            "src_path": self.folder / "text.jsonl",
            "dst_path": self.folder / "text.pbin",
            "jq_pattern": ".text",
            "num_cpus": 1,
            "eod_token": EOD,
        }
        tokenizer = {"component_key": "tokenizer", "variant_key": variant_key, "config": config}
        pack_encoded_data({"settings": settings, "tokenizer": tokenizer}, if_exists="overwrite")

    @row("`pack`, Hugging Face tokenizer, one process", "x the tokenizer without fastpack")
    def track_hugging_face(self) -> float:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        texts = standard_library_texts(1_000_000)
        write_jsonl(self.folder / "text.jsonl", texts)
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=8000, special_tokens=[EOD], show_progress=False)
        tokenizer.train_from_iterator(texts[:300], trainer)
        path = str(self.folder / "tokenizer.json")
        tokenizer.save(path)

        def alone() -> None:
            # A new tokenizer, as in each run of pack: its word cache is empty.
            fresh = Tokenizer.from_file(path)
            for i in range(0, len(texts), 64):
                for encoding in fresh.encode_batch_fast(texts[i : i + 64]):
                    _ = encoding.ids

        before = os.environ.get("TOKENIZERS_PARALLELISM")
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        try:
            ours = lambda: self.pack("pretrained_hf_tokenizer", pretrained_model_name_or_path=path)  # noqa: E731
            return ratio(ours, alone, rounds=11, clock=time.process_time)
        finally:
            del os.environ["TOKENIZERS_PARALLELISM"]
            if before is not None:
                os.environ["TOKENIZERS_PARALLELISM"] = before

    @row("`pack`, built-in bytes, one process", "x json.loads of the lines")
    def track_bytes(self) -> float:
        source = self.folder / "text.jsonl"
        write_jsonl(source, standard_library_texts(20_000_000))
        lines = source.read_bytes().splitlines()

        def parse() -> None:
            for line in lines:
                json.loads(line)

        return ratio(lambda: self.pack("builtin_bytes"), parse, rounds=7, clock=time.process_time)

    @row("`pack` of Parquet, built-in bytes, one process", "x `pack` of the same texts as JSON lines")
    def track_parquet(self) -> float:
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts = standard_library_texts(20_000_000)
        write_jsonl(self.folder / "text.jsonl", texts)
        pq.write_table(pa.table({"text": texts}), self.folder / "text.parquet", row_group_size=5000)

        def packs(name: str) -> Callable[[], object]:
            source, output = self.folder / name, self.folder / "out.pbin"
            return lambda: pack(source, output, tokenizer="bytes", num_workers=1, if_exists="overwrite")

        return ratio(packs("text.parquet"), packs("text.jsonl"), rounds=11, clock=time.process_time)
