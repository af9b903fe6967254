"""Seeded conversations and tokenizers for the comparison of chat templates: the lengths of turns are log-normal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peers.inputs import SEED, sources, texts, write_lines

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
VOCABULARIES = {"32k": 32_000, "128k": 128_000}
TRAINED_CHARACTERS = {"32k": 8_000_000, "128k": 32_000_000}
# As Llama 3 and Qwen 2.5 split texts.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a careful programmer. Answer with working code and one sentence of explanation.",
    "Be brief. If you are not sure, say so, and name what you would have to know.",
)


def make_chat_tokenizer(folder: Path, name: str) -> None:
    """Train a byte-level BPE tokenizer with a name of VOCABULARIES on the standard library."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    if name == "32k":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), last])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARIES[name],
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(TRAINED_CHARACTERS[name], np.random.default_rng(SEED)), trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[0], "bos_token": SPECIAL[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "clean_up_tokenization_spaces": False}))


def make_conversations(path: Path, n_conversations: int, answer: int, most_answers: int) -> None:
    """Write `n_conversations` rows of messages; answer: the median number of characters of an answer."""
    rows = conversations(n_conversations, answer, most_answers)
    write_lines(path, [json.dumps(row, ensure_ascii=False).encode() for row in rows])


def conversations(n_conversations: int, answer: int, most_answers: int) -> Iterator[dict[str, Any]]:
    """Yield conversations of one to `most_answers` questions and answers, 60 % of them with a system prompt."""
    rng = np.random.default_rng(SEED)
    text = "".join(sources())

    def words(median: float) -> str:
        length = max(8, int(median * rng.lognormal(0, 0.8)))
        start = int(rng.integers(len(text) - length))
        return text[start : start + length].strip() or "Go on."

    for number in range(n_conversations):
        messages: list[dict[str, Any]] = []
        if rng.random() < 0.6:
            messages.append({"role": "system", "content": SYSTEMS[int(rng.integers(len(SYSTEMS)))]})
        for _ in range(int(rng.integers(1, most_answers + 1))):
            messages.append({"role": "user", "content": words(answer / 4)})
            messages.append({"role": "assistant", "content": words(answer)})
        yield {"id": number, "messages": messages}
