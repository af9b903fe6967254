"""Seeded, realistic inputs: text of the standard library, tokenizers, packed files, conversations."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import PackedWriter, create_raw_index

SEED = 20_261_121
EOD = "<|endoftext|>"
MIB = 1 << 20
N_SOURCES = 4
LARGE = 6
VOCABULARIES = {1: 250, 2: 32_000, 4: 70_000}  # bytes per token -> entries

CHAT_CONFIG = """\
settings:
  src_path: {inputs}/chat.jsonl
  dst_path: out/chat/chat.jsonl
  messages_key: messages
  pbin_creation_config_file_path: {inputs}/packing.yaml
  split_config: {{splitting: {{train: 80, val: 15, test: 5}}, seed: 42}}
instruction_data_transformation:
  role_mapping: {{human: User, gpt: Assistant}}
jinja2_chat_template: |
  {{{{ chat_template_data.system + '\\n' }}}}
  {{% for turn in messages %}}
  {{{{ turn.role + ':' }}}}
  {{% if turn.role == chat_template_data.assistant %}}
  {{{{ chat_template_data.begin }}}}
  {{% endif %}}
  {{{{ turn.value + '\\n' }}}}
  {{% endfor %}}
chat_template_data: {{system: You are helpful., assistant: Assistant, begin: ^}}
"""


def make_tokenizers(folder: Path) -> None:
    """Train a byte-level BPE tokenizer for each token size on the standard library: `folder`/<bytes per token>/."""
    texts = list(sources())
    for size, n_entries in VOCABULARIES.items():
        (folder / str(size)).mkdir(parents=True)
        tokenizer = train_tokenizer(texts if size == 4 else texts[:600], n_entries)
        tokenizer.save(str(folder / str(size) / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOD, "model_max_length": 10**9}
        config["clean_up_tokenization_spaces"] = False
        (folder / str(size) / "tokenizer_config.json").write_text(json.dumps(config))


def train_tokenizer(texts: list[str], n_entries: int) -> Any:
    """Return a byte-level BPE tokenizer with exactly this number of entries; fewer than 257 lack some bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    has_all_bytes = n_entries > 256
    trainer = trainers.BpeTrainer(
        vocab_size=n_entries,
        special_tokens=[EOD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if has_all_bytes else [],
        limit_alphabet=256 if has_all_bytes else 128,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == n_entries
    return tokenizer


def make_inputs(folder: Path, n_bytes: int, tokenizers: str) -> None:
    """Write the inputs of all operations: text.jsonl and packed files of `n_bytes`, and large.jsonl, six times larger.

    tokenizers: the folder of `make_tokenizers`, as named in the configurations.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(SEED)
    lines = list(text_lines(n_bytes, rng))
    write_lines(folder / "text.jsonl", lines)
    write_lines(folder / "large.jsonl", list(text_lines(LARGE * n_bytes, rng)))
    for name in ("text", "large"):
        create_raw_index(folder / f"{name}.jsonl")
    short = (b'{"id": %d, "text": "%s"}' % (i, b"x" * int(n)) for i, n in enumerate(rng.integers(1, 70, n_bytes // 60)))
    write_lines(folder / "short.jsonl", list(short))
    for number in range(N_SOURCES):
        write_lines(folder / f"source{number}.jsonl", lines[number::N_SOURCES])
        write_packed(folder / f"source{number}.pbin", n_bytes // N_SOURCES, rng)
    write_packed(folder / "tokens.pbin", n_bytes, rng)
    write_lines(folder / "chat.jsonl", list(chat_lines(n_bytes // 4, rng)))
    packing = {
        "settings": pack_settings("ignored.jsonl", "ignored.pbin", ".chat"),
        "tokenizer": tokenizer(tokenizers, 2),
    }
    (folder / "packing.yaml").write_text(json.dumps(packing))  # JSON is YAML
    (folder / "chat.yaml").write_text(CHAT_CONFIG.format(inputs=f"../{folder.name}"))


def pack_settings(source: str, target: str, jq_pattern: str = ".text") -> dict[str, Any]:
    return {
        "src_path": source,
        "dst_path": target,
        "index_path": None,
        "jq_pattern": jq_pattern,
        "num_cpus": 1,
        "eod_token": EOD,
        "processing_batch_size": 100,
        "raw_samples_queue_size": 20,
        "processed_samples_queue_size": 20,
    }


def tokenizer(folder: str, size: int) -> dict[str, Any]:
    config = {"pretrained_model_name_or_path": f"{folder}/{size}", "padding": False, "truncation": False}
    return {"component_key": "tokenizer", "variant_key": "pretrained_hf_tokenizer", "config": config}


def sources() -> Iterator[str]:
    """Return the texts of the modules of the standard library, including tests, in the order of their paths."""
    folder = Path(os.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" not in path.parts:
            yield path.read_text(encoding="utf-8", errors="ignore")


def texts(n_characters: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield documents of log-normal length, cut consecutively from the sources, cyclically."""
    text = "".join(itertools.islice(sources(), 4000))
    start = done = 0
    while done < n_characters:
        length = max(60, int(rng.lognormal(7.5, 1.0)))
        start = 0 if start + length > len(text) else start
        yield text[start : start + length]
        start, done = start + length, done + length


def text_lines(n_bytes: int, rng: np.random.Generator) -> Iterator[bytes]:
    for i, text in enumerate(texts(n_bytes, rng)):
        yield json.dumps({"id": i, "text": text}, ensure_ascii=False).encode()


def chat_lines(n_bytes: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Yield conversations of two to six turns."""
    stream = texts(n_bytes, rng)
    for i in itertools.count():
        turns = list(itertools.islice(stream, 2 * int(rng.integers(1, 4))))
        if not turns:
            return
        messages = [{"role": ("human", "gpt")[n % 2], "value": turn[:2000]} for n, turn in enumerate(turns)]
        yield json.dumps({"id": i, "messages": messages}, ensure_ascii=False).encode()


def write_lines(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def write_packed(path: Path, n_bytes: int, rng: np.random.Generator) -> None:
    """Write two-byte tokens over their whole range in documents of log-normal length (mean about 800 tokens)."""
    lengths = np.maximum(2, rng.lognormal(6.18, 1.0, max(16, n_bytes // 1600))).astype(np.int64)
    tokens: npt.NDArray[np.uint16] = rng.integers(1, 1 << 16, int(lengths.sum()), dtype=np.uint16)
    tokens[np.cumsum(lengths) - 1] = 0
    with PackedWriter(path, 2) as writer:
        writer.append_many(tokens, lengths)
