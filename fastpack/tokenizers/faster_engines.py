"""The engines that run a Hugging Face tokenizer faster than its own library."""

from __future__ import annotations

from collections.abc import Callable

from fastpack.tokenizers.gigatoken_engine import GigatokenTokenizer
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import EngineDeclines, Tokenizer
from fastpack.tokenizers.tiktoken_engine import TiktokenTokenizer

FASTER_ENGINES: dict[str, Callable[[HFTokenizer], Tokenizer]] = {  # in the order in which "auto" tries them
    "gigatoken": GigatokenTokenizer,
    "tiktoken": TiktokenTokenizer,
}


def run_on_engine(own: Tokenizer, engine: str) -> Tokenizer:
    """Return the tokenizer on a faster engine.

    Raises EngineDeclines for an engine that cannot run it, MissingExtra for one that is not installed.
    """
    if engine not in FASTER_ENGINES or not isinstance(own, HFTokenizer):
        raise EngineDeclines(f"the engine {engine} does not run this kind of tokenizer")
    return FASTER_ENGINES[engine](own)
