"""How the fast tokenizer classes of transformers 4.x change a tokenizer.json, for the supported classes.

transformers itself is not used, even where it is installed. Measured on the 408 golden cases of transformers 4.57.6:
- transformers 4.57.6 gives the same ids, but to build a tokenizer takes 2.1 s and 74 MB instead of 0.3 s and 36 MB, in
  each worker process again, and it accepts damaged and unsupported directories that are errors here;
- transformers 5.23.0, which rewrote these classes, gives other results in 150 cases and takes 2.7 s. Its version would
  therefore decide the ids, and the same configuration could give other ids on another machine;
- without transformers, the tokenizer.json alone gives other results in 211 cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

# In the order in which missing ones are added to the vocabulary.
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
    """The defaults and behaviour of a tokenizer class.

    tokens: its default special tokens (a mapping is an AddedToken's arguments). adds_bos, adds_eos: the class replaces
    the post-processor by a template with these defaults; None: it keeps the post-processor. prefix_space: the option
    add_prefix_space replaces that of the pre-tokenizer ("replace"), only enables it ("only_on"), or is ignored
    ("leave").
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

# The class by the model type in config.json, for directories whose tokenizer_config.json names no class.
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
    """Return a class by its name, with or without "Fast"; ValueError for an unsupported class."""
    base = name.removesuffix("Fast")
    if base not in CLASSES:
        raise ValueError(
            f"tokenizer class {name!r}: its changes to tokenizer.json are not known here (known: "
            f"{', '.join(sorted(CLASSES))}). To use the tokenizer.json exactly as written, pass the path of that file"
        )
    return CLASSES[base]
