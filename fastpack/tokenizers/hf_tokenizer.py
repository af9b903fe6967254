"""Hugging Face tokenizers (`pretrained_hf_tokenizer`) with the `tokenizers` library alone.

A directory is read as by AutoTokenizer of transformers 4.x, for the tokenizer classes in `hf_classes`; a tokenizer.json
is used as written.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from fastpack.errors import spoken
from fastpack.tokenizers.hf_classes import SPECIAL_TOKENS
from fastpack.tokenizers.hf_loading import LoadedTokenizer, load_directory, load_file
from fastpack.tokenizers.interface import (
    Lengths,
    SpecialTokens,
    Tokens,
    check_options,
    flatten,
    named_tokens,
    refusals,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

NO_LIMIT = 10**20  # transformers treats a larger model_max_length as "none"
TEXTS_PER_CALL = 64  # an Encoding takes about 100 bytes per token until its ids are copied
OPTIONS = ("pretrained_model_name_or_path", "truncation", "padding", "max_length", "special_tokens")


@dataclass(frozen=True)
class HFOptions:
    """The options of Modalities' wrapper, which passes them to the tokenizer with every text."""

    truncation: bool | None = False
    padding: bool | str = False
    max_length: int | None = None
    special_tokens: Mapping[str, Any] | None = None


class HFTokenizer:
    """Gives the ids of `tokenizer(text, max_length=, padding=, truncation=)["input_ids"]` for each text.

    adds_special_tokens: whether texts get the special tokens of the post-processor; False for rendered conversations.
    """

    worker_bytes = 1 << 20
    adds_special_tokens = True

    def __init__(self, path: str, options: HFOptions, class_name: str | None = None) -> None:
        loaded = load_directory(path) if os.path.isdir(path) else load_file(path, class_name)
        self.backend, self.tokens, self.cleans_up = loaded.backend, loaded.tokens, loaded.cleans_up
        if options.special_tokens:
            _name_special_tokens(self.backend, self.tokens, options.special_tokens)
        _set_truncation_and_padding(loaded, options)
        self._file = None if options.special_tokens else loaded.file
        self._split: tuple[str, Backend] | None = None  # built when it is needed

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> HFTokenizer:
        """Build the tokenizer of a `pretrained_hf_tokenizer` configuration; ValueError, FileNotFoundError."""
        check_options("pretrained_hf_tokenizer", config, OPTIONS[0], OPTIONS)
        path = os.fspath(config[OPTIONS[0]])
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"{spoken(f'tokenizer.config.{OPTIONS[0]}')}: {path} is neither a directory nor a tokenizer.json on "
                "this machine. Pass the path of a tokenizer, or ORG/NAME to --tokenizer for one of the Hugging Face Hub"
            )
        return cls(path, _options(config))

    @classmethod
    def from_llm_gym(cls, config: Mapping[str, Any]) -> HFTokenizer:
        """Build the tokenizer of llm_gym's create_packed_data: a tokenizer.json and its transformers class."""
        check_options("llm_gym_tokenizer", config, "tokenizer_file", ("tokenizer_file", "tokenizer_type"))
        path = os.fspath(config["tokenizer_file"])
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{path} is not there: expected a tokenizer.json")
        return cls(path, HFOptions(), config.get("tokenizer_type", "GPT2TokenizerFast"))

    @cached_property
    def description(self) -> str:
        """The tokenizer as JSON, as the library writes it."""
        return self.backend.to_str()

    @property
    def json(self) -> bytes:
        """The tokenizer as JSON, as it is in its file if possible: `description` takes 60 ms for 128,000 tokens."""
        if self._file is None:
            return self.description.encode()
        with open(self._file, "rb") as file:
            return file.read()

    @property
    def vocab_size(self) -> int:
        return int(self.backend.get_vocab_size(with_added_tokens=False))

    def eod_id(self, eod_token: str) -> int:
        """Return the id of a token; an unknown token is the unk token, as in transformers, with a warning."""
        unk = self.tokens.get("unk_token")
        unk_id = None if unk is None else self.backend.token_to_id(str(unk))
        token_id = self.backend.token_to_id(eod_token)
        if token_id is None:
            token_id = unk_id
        if token_id is None:
            known = named_tokens(self.special_names())
            raise ValueError(f"Token is not represented by a single token id! ({eod_token!r}) {known}.")
        if token_id == unk_id:
            warnings.warn(
                f"The provided eod token {eod_token} has the same token id ({token_id}) as the unk token", stacklevel=2
            )
        return int(token_id)

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        """Encode as `Tokenizer.encode_many`, with a bounded number of texts per call of the library."""
        return _encode(self.backend, texts, eod, self.adds_special_tokens)

    def token_of_id(self, token_id: int) -> str | None:
        return self.backend.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None

    def special_names(self) -> list[str]:
        """Return the special tokens."""
        return [token.content for token in self.backend.get_added_tokens_decoder().values() if token.special]

    def special_tokens(self, eod_token: str) -> SpecialTokens:
        """Return the special tokens that texts can contain: special added tokens and the end-of-document token."""
        added = self.backend.get_added_tokens_decoder().items()
        tokens = [(number, token) for number, token in added if token.special or token.content == eod_token]
        if not any(token.content == eod_token for _, token in tokens):
            return SpecialTokens((*(token.content for _, token in tokens), eod_token))
        normalizes = self.backend.normalizer is not None
        loose = {token.content: number for number, token in tokens if normalizes and token.normalized}
        return SpecialTokens(tuple(token.content for _, token in tokens), loose)

    def encode_split(self, texts: Sequence[str], eod_token: str, eod: int) -> tuple[Tokens, Lengths]:
        """Encode as `Tokenizer.encode_split`: the ids of transformers with `split_special_tokens=True`."""
        if self._split is None or self._split[0] != eod_token:
            self._split = eod_token, _splitting(self.backend, eod_token)
        return _encode(self._split[1], texts, eod, self.adds_special_tokens)


def _encode(backend: Backend, texts: Sequence[str], eod: int | None, add_special: bool) -> tuple[Tokens, Lengths]:
    documents: list[list[int]] = []
    remaining = iter(texts)
    while group := list(islice(remaining, TEXTS_PER_CALL)):
        with refusals():
            documents.extend(
                encoding.ids for encoding in backend.encode_batch_fast(group, add_special_tokens=add_special)
            )
    return flatten(documents, eod)


def _splitting(backend: Backend, eod_token: str) -> Backend:
    """Return a copy that encodes the text of special tokens, including `eod_token`, as ordinary text."""
    from tokenizers import Tokenizer

    description = orjson.loads(backend.to_str())
    for token in description["added_tokens"]:
        token["special"] = token["special"] or token["content"] == eod_token
    copy = Tokenizer.from_str(orjson.dumps(description).decode())
    copy.encode_special_tokens = True
    return copy


def _options(config: Mapping[str, Any]) -> HFOptions:
    truncation, padding = config.get("truncation", False), config.get("padding", False)
    max_length, special = config.get("max_length"), config.get("special_tokens")
    if truncation is not None and not isinstance(truncation, bool):
        raise ValueError(f"tokenizer.config.truncation: found {truncation!r}, expected true or false")
    padding = False if padding is None else padding
    if not isinstance(padding, bool) and padding not in ("longest", "max_length", "do_not_pad"):
        raise ValueError(
            f"tokenizer.config.padding: found {padding!r}, expected true, false, longest, max_length or do_not_pad"
        )
    if max_length is not None and (not isinstance(max_length, int) or isinstance(max_length, bool) or max_length < 0):
        raise ValueError(f"tokenizer.config.max_length: found {max_length!r}, expected an int of at least 0 or null")
    if special is not None and not isinstance(special, Mapping):
        raise ValueError(f"tokenizer.config.special_tokens: found {special!r}, expected a mapping")
    return HFOptions(truncation, padding, max_length, special)


def _name_special_tokens(backend: Backend, tokens: dict[str, Any], named: Mapping[str, Any]) -> None:
    """Assign special roles to tokens of the vocabulary, so that texts are split at them."""
    from tokenizers import AddedToken

    before = backend.get_vocab_size(with_added_tokens=True)
    added: list[AddedToken] = []
    for key, value in named.items():
        many = key == "additional_special_tokens"
        values = value if many and isinstance(value, list) else [value]
        if key not in SPECIAL_TOKENS or not all(isinstance(v, str) for v in values) or many != isinstance(value, list):
            raise ValueError(f"tokenizer.config.special_tokens.{key}: found {value!r}, expected a special token's name")
        new = [AddedToken(v, rstrip=False, lstrip=False, normalized=False, special=True) for v in values]
        tokens[key] = [*tokens.get(key, []), *new] if many else new[0]
        added += new
    backend.add_special_tokens(added)
    if backend.get_vocab_size(with_added_tokens=True) > before:
        raise NotImplementedError(
            "Currently only tokens already known to the tokenizers vocabulary can be added, as resizing the embedding "
            "matrix is not yet supported!"
        )


def _set_truncation_and_padding(loaded: LoadedTokenizer, options: HFOptions) -> None:
    """Set the truncation and padding that transformers derives from the three options at each call."""
    truncation = options.truncation
    if truncation is None:  # only max_length is given, which enables truncation
        truncation = options.max_length is not None and options.padding is False
    pads = options.padding is not False and options.padding != "do_not_pad"
    has_limit = loaded.model_max_length <= NO_LIMIT
    length = options.max_length
    if length is None:
        length = int(loaded.model_max_length) if has_limit else None
    pad = loaded.tokens.get("pad_token")
    to_length = options.padding == "max_length" and length is not None
    pads = pads and (options.padding != "max_length" or to_length)
    if pads and pad is None:
        raise ValueError("Asking to pad but the tokenizer does not have a padding token: name a pad_token")
    backend = loaded.backend
    backend.no_truncation()
    backend.no_padding()
    if truncation and length is not None:
        backend.enable_truncation(length, stride=0, strategy="longest_first", direction=loaded.truncation_side)
    if to_length:  # padding to the longest of one text has no effect
        backend.enable_padding(
            length=length,
            direction=loaded.padding_side,
            pad_id=backend.token_to_id(str(pad)),
            pad_token=str(pad),
            pad_type_id=loaded.pad_type_id,
        )


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run the tokenizers library on this thread only: one worker means one thread."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
