"""What the fast tokenizer classes of transformers (4.x) change about a tokenizer.json, for the classes known here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

# In this order, which is the order in which missing ones are added to the vocabulary.
SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "additional_special_tokens",
)

PrefixSpace = Literal["replace", "only_on", "leave"]


@dataclass(frozen=True)
class TokenizerClass:
    """A class's defaults and habits.

    tokens: its default special tokens (a mapping is an AddedToken's arguments). adds_bos, adds_eos: its own template
    replaces the post-processor, with these defaults; None: the post-processor stays. prefix_space: the pre-tokenizer's
    add_prefix_space is replaced by the option ("replace"), only ever switched on ("only_on"), or left alone ("leave").
    lowercases: BERT's normalizer follows do_lower_case, strip_accents and tokenize_chinese_chars.
    """

    tokens: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    padding_side: str = "right"
    adds_bos: bool | None = None
    adds_eos: bool | None = None
    prefix_space: PrefixSpace = "replace"
    lowercases: bool = False


def _verbatim(content: str) -> Mapping[str, Any]:
    return MappingProxyType({"content": content, "normalized": False, "special": True})


_GPT2 = {"unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
_ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
_BERT = TokenizerClass(
    {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    lowercases=True,
)

CLASSES: dict[str, TokenizerClass] = {
    "PreTrainedTokenizer": TokenizerClass(),
    "GPT2Tokenizer": TokenizerClass(_GPT2),
    "Qwen2Tokenizer": TokenizerClass(
        {
            "unk_token": _verbatim("<|endoftext|>"),
            "eos_token": _verbatim("<|endoftext|>"),
            "pad_token": _verbatim("<|endoftext|>"),
        }
    ),
    "GPTNeoXTokenizer": TokenizerClass(_GPT2, adds_bos=False, adds_eos=False),
    "LlamaTokenizer": TokenizerClass(
        {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
        padding_side="left",
        adds_bos=True,
        adds_eos=False,
        prefix_space="leave",
    ),
    "GemmaTokenizer": TokenizerClass(
        {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
        padding_side="left",
        adds_bos=True,
        adds_eos=False,
    ),
    "CohereTokenizer": TokenizerClass(
        {"unk_token": "<UNK>", "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>"},
        padding_side="left",
        adds_bos=True,
        adds_eos=False,
    ),
    "RobertaTokenizer": TokenizerClass(
        {**_ROBERTA, "mask_token": MappingProxyType({"content": "<mask>", "lstrip": True, "normalized": False})}
    ),
    "XLMRobertaTokenizer": TokenizerClass(
        {**_ROBERTA, "mask_token": MappingProxyType({"content": "<mask>", "lstrip": True})}
    ),
    "BertTokenizer": _BERT,
    "DistilBertTokenizer": _BERT,
}

# Where tokenizer_config.json names no class, the model's config.json does, by its type.
CLASS_OF_MODEL = {
    "bert": "BertTokenizer",
    "cohere": "CohereTokenizer",
    "cohere2": "CohereTokenizer",
    "distilbert": "DistilBertTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt_neo": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "llama": "LlamaTokenizer",
    "mistral": "LlamaTokenizer",
    "mixtral": "LlamaTokenizer",
    "olmo": "GPTNeoXTokenizer",
    "opt": "GPT2Tokenizer",
    "phi3": "LlamaTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen2_moe": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}


def tokenizer_class(name: str) -> TokenizerClass:
    """The class by its name, with or without "Fast"; ValueError for one whose habits are not known here."""
    base = name.removesuffix("Fast")
    if base not in CLASSES:
        raise ValueError(
            f"tokenizer class {name!r}: what it does beside its tokenizer.json is not known here (known: "
            f"{', '.join(sorted(CLASSES))}). To use the tokenizer.json exactly as it is written, name that file itself"
        )
    return CLASSES[base]
