"""Tokenizers from files for the engine tests, and probe texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastpack.tokenizers.engines import Choice, choose_engine
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

HF = "pretrained_hf_tokenizer"
EOD = "<|endoftext|>"
FASTER = ("gigatoken", "tiktoken")
PIECES = (
    *(EOD, "<|im_start|>", "</think>", "<|begin|>", "'s", "'LL", "\u017f", "e\u0301", "\u0301", "\r\n", "  ", "12345"),
    *("\u3000", "\U0001f468\u200d\U0001f469", "\u088f", "\U00010940", "\x00", "\ufffd", "def f(self):\n    ", "\t"),
)


def spec_of(path: Path, **options: Any) -> TokenizerSpec:
    return TokenizerSpec(HF, {"pretrained_model_name_or_path": str(path), **options})


def choose(spec: TokenizerSpec, engine: str, sample: Callable[[], Sequence[str]]) -> Choice:
    return choose_engine(spec, spec.build(), engine, sample)


def built(spec: TokenizerSpec) -> HFTokenizer:
    tokenizer = spec.build()
    assert isinstance(tokenizer, HFTokenizer)
    return tokenizer
