"""Which library runs a tokenizer: its own, or a faster one that first proves to give the very same ids.

The proof runs both libraries on documents of the user's own and on `hard_texts`. A faster library that is not
installed, cannot express the tokenizer, or differs in one id is passed over by "auto" and an error when it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from fastpack.errors import MissingExtra
from fastpack.tokenizers.faster_engines import FASTER_ENGINES, run_on_engine
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import EngineDeclines, FaultyText, Tokenizer
from fastpack.tokenizers.probe_texts import hard_texts
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

ENGINES = ("auto", "tokenizers", "gigatoken", "tiktoken", "sentencepiece")
MIN_BYTES = 2 << 20  # of documents: below, proving a faster engine takes longer than `tokenizers` alone
PROVED_BYTES = 1 << 19  # of documents, taken evenly from the sample: 0.1-0.4 s of `tokenizers`
MAX_LITERALS = 24  # of each end of a list of added tokens
TEXTS_A_STEP = 256


class Choice(NamedTuple):
    """What to run: the spec for workers, the same built, and a sentence for the user where there is one to say."""

    spec: TokenizerSpec
    tokenizer: Tokenizer
    sentence: str | None = None


def choose_engine(spec: TokenizerSpec, own: Tokenizer, engine: str, sample: Callable[[], Sequence[str]]) -> Choice:
    """What runs the tokenizer of `spec`.

    own: the tokenizer, built on its own library. engine: one of ENGINES. sample: gives documents of the user's own; it
    is called only to prove a faster engine. Of less than 2 MiB in all "auto" stays with the own library.

    Raises ValueError for an engine that does not fit the tokenizer or gives other ids, MissingExtra for one that is not
    installed.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    spec = replace(spec, engine="")
    if engine == spec.engine or (engine == "auto" and spec.engine != "tokenizers"):
        return Choice(spec, own)
    if spec.engine != "tokenizers":
        runs = f"runs on {spec.engine} alone" if spec.engine else "needs none"
        raise ValueError(f"the engine {engine} does not fit: {spec.variant_key} {runs}")
    if engine not in ("auto", *FASTER_ENGINES):
        raise ValueError(f"the engine {engine} does not fit: {spec.variant_key} runs on tokenizers, or a faster engine")
    return _choose_faster(spec, own, sample) if engine == "auto" else _prove_named(spec, own, engine, sample)


def _prove_named(spec: TokenizerSpec, own: Tokenizer, engine: str, sample: Callable[[], Sequence[str]]) -> Choice:
    try:
        fast = run_on_engine(own, engine)
    except EngineDeclines as error:
        raise ValueError(f"the engine {engine} cannot run this tokenizer: {error}") from None
    difference = first_difference(own, fast, [*hard_texts(_literals(own)), *_evenly(sample())])
    if difference is not None:
        raise ValueError(f"the engine {engine} gives other ids than tokenizers, on the text {difference}")
    return Choice(replace(spec, engine=engine), fast)


def _choose_faster(spec: TokenizerSpec, own: Tokenizer, sample: Callable[[], Sequence[str]]) -> Choice:
    documents = sample()
    if sum(map(len, documents)) < MIN_BYTES:
        return Choice(spec, own)
    documents = _evenly(documents)
    texts = [*hard_texts(_literals(own)), *documents]
    reasons: list[str] = []
    for engine in FASTER_ENGINES:
        try:
            fast = run_on_engine(own, engine)
        except MissingExtra:
            continue
        except EngineDeclines as error:
            reasons.append(f"{engine} cannot run it ({error})")
            continue
        difference = first_difference(own, fast, texts)
        if difference is None:
            proof = f"{len(documents)} of the documents and {len(texts) - len(documents)} hard texts"
            sentence = f"{engine} tokenises: it gave the same ids as tokenizers on {proof}."
            return Choice(replace(spec, engine=engine), fast, sentence)
        reasons.append(f"{engine} gives other ids on the text {difference}")
    if not reasons:
        missing = "tokenizers tokenises; a faster engine is not installed (pip install 'fastpack-llm[gigatoken]')."
        return Choice(spec, own, missing)
    return Choice(spec, own, f"tokenizers tokenises: {'; '.join(reasons)}.")


def first_difference(own: Tokenizer, fast: Tokenizer, texts: Sequence[str]) -> str | None:
    """The first text that the two do not tokenise alike, cut short and quoted; None when there is none."""
    for step in _steps(texts):
        if not _alike(own, fast, step):
            return next((_quoted(text) for text in step if not _alike(own, fast, [text])), _quoted("".join(step)))
    return None


def _evenly(documents: Sequence[str]) -> Sequence[str]:
    return documents[:: max(1, sum(map(len, documents)) // PROVED_BYTES)]


def _steps(texts: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while step := list(islice(remaining, TEXTS_A_STEP)):
        yield step


def _alike(own: Tokenizer, fast: Tokenizer, texts: Sequence[str]) -> bool:
    try:
        tokens, lengths = own.encode_many(texts)
    except FaultyText:
        return True  # the engine gives a text it refuses to the tokenizer's own library
    found, found_lengths = fast.encode_many(texts)
    return np.array_equal(lengths, found_lengths) and np.array_equal(tokens, found)


def _literals(own: Tokenizer) -> list[str]:
    """What the tokenizer finds in texts as it is written; of very many, the first and the last."""
    assert isinstance(own, HFTokenizer)
    literals = [token.content for token in own.backend.get_added_tokens_decoder().values()]
    return literals if len(literals) <= 2 * MAX_LITERALS else literals[:MAX_LITERALS] + literals[-MAX_LITERALS:]


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}... of {len(text)} characters"
