"""Byte-level BPE tokenizers of the common kinds, trained by the fixtures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

EOD = "<|endoftext|>"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _split(pattern: str) -> Any:
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_])


def _sources() -> list[str]:
    folder = Path(json.__file__).parent.parent
    files = sorted(folder.glob("*.py"))[:40]
    return [text for path in files for text in path.read_text(encoding="utf-8").split("\n\n")]


def _trained(model: Any, splitter: Any, specials: list[str], normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = splitter, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=specials, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(_sources(), trainer)
    return tokenizer


def gpt2() -> Tokenizer:
    return _trained(models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False), [EOD])


def llama3() -> Tokenizer:
    """A start token before every text, words that are tokens regardless of merges, and EOD after the vocabulary."""
    tokenizer = _trained(models.BPE(ignore_merges=True), _split(rf"{_WORDS}\p{{N}}{{1,3}}{_REST}"), [])
    tokenizer.add_special_tokens(["<|begin|>", EOD])
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.TemplateProcessing("<|begin|> $A", None, [("<|begin|>", begin)])
    return tokenizer


def qwen() -> Tokenizer:
    """NFC normalisation, and added tokens that are not special."""
    splitter = _split(rf"{_WORDS}\p{{N}}{_REST}")
    tokenizer = _trained(models.BPE(), splitter, [EOD, "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</think>", normalized=False)])
    return tokenizer


def pairs() -> Tokenizer:
    """A token for every pair of bytes: the ids show nearly every boundary of the pattern."""
    description = json.loads(gpt2().to_str())
    alphabet = [character for character in description["model"]["vocab"] if len(character) == 1]
    merges = [[a, b] for a in alphabet for b in alphabet]
    tokens = [*alphabet, *("".join(merge) for merge in merges), EOD]
    description["model"].update(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    description["added_tokens"][0]["id"] = len(tokens) - 1
    return Tokenizer.from_str(json.dumps(description))


KINDS: dict[str, Callable[[], Tokenizer]] = {f.__name__: f for f in (gpt2, llama3, qwen, pairs)}


@pytest.fixture(scope="session")
def tokenizer_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the path of tokenizer.json for each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    paths = {name: folder / f"{name}.json" for name in KINDS}
    for name, make in KINDS.items():
        make().save(str(paths[name]))
    return paths
