"""The compared operations: one `Work` per row of the table, with its target ratio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from peers.inputs import N_SOURCES, VOCABULARIES, pack_settings, tokenizer

INDEX_RIGHT = "no: the right index"


@dataclass(frozen=True)
class Work:
    """One operation on one input.

    out: the file or folder that both sides write, relative to their own folders; empty for operations that return
    arrays. options: keyword arguments of fastpack only. bar: the target ratio of CPU times, None for no target. equal:
    the expected text in the column of equal bytes.
    """

    title: str
    operation: str
    source: str
    out: str = ""
    bar: float | None = None
    equal: str = "yes"
    options: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def shared(self) -> tuple[Any, ...]:
        """Return the inputs of the peer; adjacent rows with equal inputs share its measurement."""
        return self.operation, self.source, self.out, json.dumps(self.arguments)

    def request(self, inputs: str, seconds: float) -> dict[str, Any]:
        """Return the request for a runner; `@` in the arguments is replaced by the folder of the inputs."""
        request = {
            "operation": self.operation,
            "source": f"@/{self.source}",
            "out": self.out,
            "options": self.options,
            "seconds": seconds,
            **self.arguments,
        }
        filled: dict[str, Any] = json.loads(json.dumps(request).replace("@/", f"../{inputs}/"))
        return filled


def all_work() -> list[Work]:
    """Return all rows in the order of the table."""
    return [*_index(), *_pack(), *_edits(), *_chat(), *_reads()]


def _index() -> Iterator[Work]:
    for source in ("text.jsonl", "short.jsonl"):
        out = f"out/{source}.idx"
        yield Work("create_raw_index, JSON checked", "index", source, out, 5, options={"validate": True})
        yield Work("create_raw_index, unchecked", "index", source, out, 20, options={"validate": False})


def _pack() -> Iterator[Work]:
    """Return the row for packing; there is no fast engine for one byte per token, because 257 ids need two bytes."""
    for size, entries in VOCABULARIES.items():
        yield _packing(size, f"{entries:,} entries, engine tokenizers", "text", 1.5, "tokenizers")
    for size, entries in VOCABULARIES.items():
        if size > 1:  # the cost of "auto" is the validation of the engine, independent of the size of the text
            yield _packing(size, f"{entries:,} entries, engine auto", "large", 20, "auto")


def _packing(size: int, title: str, source: str, bar: float, engine: str) -> Work:
    out = f"out/{source}{size}.pbin"
    config = {
        "settings": {**pack_settings(f"@/{source}.jsonl", out), "index_path": f"@/{source}.idx"},
        "tokenizer": tokenizer("../tokenizers", size),
    }
    return Work(
        f"pack_encoded_data, {title}",
        "pack",
        f"{source}.jsonl",
        out,
        bar,
        options={"engine": engine},
        arguments={"config": json.dumps(config)},
    )


def _edits() -> Iterator[Work]:
    packed, lines = ({"sources": [f"@/source{i}.{kind}" for i in range(N_SOURCES)]} for kind in ("pbin", "jsonl"))
    yield Work("shuffle_tokenized_data", "shuffle_tokenized", "tokens.pbin", "out/shuffled.pbin")
    yield Work("shuffle_jsonl_data", "shuffle_jsonl", "text.jsonl", "out/shuffled.jsonl")
    yield Work("create_shuffled_dataset_chunk", "chunk_tokenized", "4 .pbin", "out/chunk.pbin", 10, arguments=packed)
    yield Work("create_shuffled_jsonl_chunk", "chunk_jsonl", "4 .jsonl", "out/chunk.jsonl", arguments=lines)
    yield Work("create_filtered_tokenized_dataset", "filter", "tokens.pbin", "out/filtered.pbin", 10)
    old = {"compat": "modalities-0.5"}
    yield Work("merge_packed_data, compat", "merge", "4 .pbin", "out/merged.pbin", options=old, arguments=packed)
    yield Work("merge_packed_data", "merge", "4 .pbin", "out/merged.pbin", equal=INDEX_RIGHT, arguments=packed)


def _chat() -> Iterator[Work]:
    arguments = {"config_path": "@/chat.yaml"}
    for engine in ("tokenizers", "auto"):
        title, options = f"prepare_instruction_tuning_data, engine {engine}", {"engine": engine}
        yield Work(title, "prepare_chat", "chat.jsonl", "out/chat", options=options, arguments=arguments)


def _reads() -> Iterator[Work]:
    yield Work("PackedMemMapDatasetContinuous()", "construct", "tokens.pbin")
    yield Work("its samples one by one", "read", "tokens.pbin")
    yield Work("its samples in batches of 32", "read_batches", "tokens.pbin")
