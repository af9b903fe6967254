"""Descriptions of tokenizers: picklable, so that every worker process builds the same tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpack.errors import spoken
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.gigatoken_engine import GigatokenTokenizer
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.hub import is_hub_name, tokenizer_folder
from fastpack.tokenizers.interface import EngineDeclines, Tokenizer, check_options
from fastpack.tokenizers.sp_tokenizer import SPTokenizer
from fastpack.tokenizers.tiktoken_engine import TiktokenTokenizer

FASTER_ENGINES: dict[str, Callable[[HFTokenizer], Tokenizer]] = {  # in the order in which "auto" tries them
    "gigatoken": GigatokenTokenizer,
    "tiktoken": TiktokenTokenizer,
}
OWN_ENGINES = {
    "pretrained_hf_tokenizer": "tokenizers",
    "pretrained_sp_tokenizer": "sentencepiece",
    "llm_gym_tokenizer": "tokenizers",
}


def _build_bytes(config: Mapping[str, Any]) -> Tokenizer:
    check_options("builtin_bytes", config, None, ())
    return BytesTokenizer()


_VARIANTS: dict[str, Callable[[Mapping[str, Any]], Tokenizer]] = {
    "pretrained_hf_tokenizer": HFTokenizer.from_config,
    "pretrained_sp_tokenizer": SPTokenizer.from_config,
    "builtin_bytes": _build_bytes,
    "llm_gym_tokenizer": HFTokenizer.from_llm_gym,
}


@dataclass(frozen=True)
class TokenizerSpec:
    """The description of a tokenizer: variant, its options, and its engine.

    engine: the library that runs it, as `engines.choose_engine` decided; by default the variant's own library.
    adds_special_tokens: whether texts get the special tokens of a Hugging Face tokenizer's post-processor.
    """

    variant_key: str
    config: Mapping[str, Any] = field(default_factory=dict)
    engine: str = ""
    adds_special_tokens: bool = True

    def __post_init__(self) -> None:
        if not self.engine:
            object.__setattr__(self, "engine", OWN_ENGINES.get(self.variant_key, ""))

    def build(self) -> Tokenizer:
        """Build the tokenizer on its engine.

        Raises ValueError for an unknown variant or option, and for an engine that cannot run it (EngineDeclines);
        MissingExtra, FileNotFoundError.
        """
        if self.variant_key not in _VARIANTS:
            name, known = spoken("tokenizer.variant_key"), ", ".join(_VARIANTS)
            raise ValueError(f"{name}: unknown tokenizer {self.variant_key!r} (known: {known})")
        tokenizer = _VARIANTS[self.variant_key](self.config)
        if isinstance(tokenizer, HFTokenizer):
            tokenizer.adds_special_tokens = self.adds_special_tokens
        if self.engine == OWN_ENGINES.get(self.variant_key, ""):
            return tokenizer
        return run_on_engine(tokenizer, self.engine)

    @classmethod
    def from_name(cls, name: str) -> TokenizerSpec:
        """Return the spec of `--tokenizer NAME`.

        NAME: `bytes`, a SentencePiece `.model`, the path of a Hugging Face tokenizer, or ORG/NAME on the Hub, which is
        downloaded unless it is in the local cache. Raises as `hub.tokenizer_folder`.
        """
        if name == "bytes":
            return cls("builtin_bytes")
        if name.endswith(".model"):
            return cls("pretrained_sp_tokenizer", {"tokenizer_model_file": name})
        path = tokenizer_folder(name) if is_hub_name(name) else name
        return cls("pretrained_hf_tokenizer", {"pretrained_model_name_or_path": path})


def run_on_engine(own: Tokenizer, engine: str) -> Tokenizer:
    """Return the tokenizer on a faster engine.

    Raises EngineDeclines for an engine that cannot run it, MissingExtra for one that is not installed.
    """
    if engine not in FASTER_ENGINES or not isinstance(own, HFTokenizer):
        raise EngineDeclines(f"the engine {engine} does not run this kind of tokenizer")
    return FASTER_ENGINES[engine](own)
