"""JSONL sources, configurations, and word-level tokenizers for pack tests."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packed_files import documents_of

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
    chosen = {
        "src_path": source,
        "dst_path": source.with_suffix(".pbin"),
        "jq_pattern": ".text",
        "num_cpus": 1,
        "eod_token": "<|endoftext|>",
        **changes,
    }
    return {"settings": chosen, "tokenizer": tokenizer}


def settings_of(config: Any, *, per_source: bool = False, **options: Any) -> PackSettings:
    """Return the settings of a configuration, with options that are not part of it."""
    return replace(load_pack_settings(config, per_source=per_source), **options)


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
