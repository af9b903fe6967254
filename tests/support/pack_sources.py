"""JSONL sources, configurations, and word-level tokenizers for pack tests."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packed_files import documents_of

from fastpack.packing import packing_pipeline
from fastpack.packing.modalities_config import load_pack_settings
from fastpack.packing.pack import pack_encoded_data
from fastpack.packing.pack_result import PackResult
from fastpack.packing.settings import PackSettings

BYTES = {"component_key": "tokenizer", "variant_key": "builtin_bytes", "config": {}}


def line(text: Any) -> bytes:
    return json.dumps({"text": text}, ensure_ascii=False).encode()


def write_source(folder: Path, lines: Sequence[bytes]) -> Path:
    """Write a JSONL file of these lines, which may be faulty, and its index."""
    source = folder / "src.jsonl"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    rows, offset = [], 0
    for line in lines:
        rows.append((offset, len(line)))
        offset += len(line) + 1
    source.with_suffix(".idx").write_bytes(pickle.dumps(rows, protocol=4))
    return source


def config_of(source: Path, tokenizer: dict[str, Any] = BYTES, **changes: Any) -> dict[str, Any]:
    """Return the configuration that packs a source into the file next to it; changes may name other paths."""
    paths = {"src_path": source, "dst_path": source.with_suffix(".pbin")}
    return config_to(tokenizer=tokenizer, **{**paths, **changes})


def config_to(src_path: Any, dst_path: Any, tokenizer: dict[str, Any] = BYTES, **changes: Any) -> dict[str, Any]:
    """Return the configuration that packs one or several sources into a file, or each of them into a file."""
    settings = {"src_path": src_path, "dst_path": dst_path, "jq_pattern": ".text", "num_cpus": 1}
    return {"settings": {**settings, "eod_token": "<|endoftext|>", **changes}, "tokenizer": tokenizer}


def settings_of(config: Any, *, per_source: bool = False, **options: Any) -> PackSettings:
    """Return the settings of a configuration, with options that are not part of it."""
    return replace(load_pack_settings(config, per_source=per_source), **options)


def batch_bytes(monkeypatch: pytest.MonkeyPatch, n_bytes: int, checkpoints: bool = True) -> None:
    """Set the size of batches; checkpoints: write one after every batch."""
    monkeypatch.setattr(packing_pipeline, "MIN_BATCH_BYTES", n_bytes)
    monkeypatch.setattr(packing_pipeline, "MAX_BATCH_BYTES", n_bytes)
    if checkpoints:
        monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", -1)


def disk_full_after(share: float) -> Callable[[int, int], None]:
    """Return a progress function that fails when a share of the work is done."""

    def stop(done: int, total: int) -> None:
        if done > share * total:
            raise OSError(28, "No space left on device")

    return stop


def interrupt(done: int, total: int) -> None:
    """Stop at the first report of progress."""
    raise KeyboardInterrupt


def as_tokens(text: str) -> list[int]:
    return [*text.encode(), 256]


def pack_lines(folder: Path, lines: Sequence[bytes], **changes: Any) -> tuple[PackResult, list[list[int]]]:
    result = pack_encoded_data(config_of(write_source(folder, lines), **changes), if_exists="overwrite")
    return result, documents_of(result.path)


def tokenizer_of(folder: Path, vocabulary: Sequence[str], added: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Write a word-level tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=vocabulary[0]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(list(added))
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<eod>"})
    )
    config = {"pretrained_model_name_or_path": str(folder), **options}
    return {"component_key": "tokenizer", "variant_key": "pretrained_hf_tokenizer", "config": config}
