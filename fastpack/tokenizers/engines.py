"""Choose the library that runs a tokenizer: its own, or a faster one that gives the same ids.

Both libraries are compared on the user's documents and on `probe_texts`. "auto" skips a faster library that is not
installed, cannot express the tokenizer, or differs in one id; naming such a library is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from fastpack.errors import MissingExtra
from fastpack.tokenizers.engine_proof import EngineProof
from fastpack.tokenizers.hf_tokenizer import HFTokenizer, single_threaded
from fastpack.tokenizers.interface import EngineDeclines, FaultyText, Tokenizer, quoted
from fastpack.tokenizers.probe_texts import probe_texts
from fastpack.tokenizers.tokenizer_spec import FASTER_ENGINES, TokenizerSpec, run_on_engine

ENGINES = ("auto", "tokenizers", "gigatoken", "tiktoken", "sentencepiece")
MIN_BYTES = 2 << 20  # of documents: with less, the comparison takes longer than `tokenizers` alone
COMPARED_BYTES = 1 << 19  # of documents, evenly from the sample: 0.1-0.4 s of `tokenizers`
COMPARED_BYTES_IF_PROVEN = 1 << 14
MAX_LITERALS = 24  # from each end of the list of added tokens
TEXTS_PER_STEP = 128  # the result of more is an awkward array in gigatoken, which takes 0.3 s to import


class Choice(NamedTuple):
    """The choice: the spec for workers, the tokenizer built from it, and a sentence for the user."""

    spec: TokenizerSpec
    tokenizer: Tokenizer
    sentence: str | None = None


class EvenSample(list[str]):
    """Documents that were chosen evenly from a sample of `n_bytes`, of which the others were not even read."""

    def __init__(self, texts: Sequence[str], n_bytes: int) -> None:
        super().__init__(texts)
        self.n_bytes = n_bytes


def choose_engine(spec: TokenizerSpec, own: Tokenizer, engine: str, sample: Callable[[], Sequence[str]]) -> Choice:
    """Return what runs the tokenizer of `spec`.

    own: the tokenizer on its own library. engine: one of ENGINES. sample: returns documents of the user; called only to
    compare a faster engine. "auto" keeps the own library for less than 2 MiB of documents.

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
    return _choose_faster(spec, own, sample) if engine == "auto" else _compare_named(spec, own, engine, sample)


def _compare_named(spec: TokenizerSpec, own: Tokenizer, engine: str, sample: Callable[[], Sequence[str]]) -> Choice:
    try:
        fast = run_on_engine(own, engine)
    except EngineDeclines as error:
        raise ValueError(f"the engine {engine} cannot run this tokenizer: {error}") from None
    difference, _ = _compare(own, fast, engine, sample())
    if difference is not None:
        raise ValueError(f"the engine {engine} gives other ids than tokenizers, on the text {difference}")
    return Choice(replace(spec, engine=engine), fast)


def _choose_faster(spec: TokenizerSpec, own: Tokenizer, sample: Callable[[], Sequence[str]]) -> Choice:
    documents = sample()
    n_bytes = documents.n_bytes if isinstance(documents, EvenSample) else sum(map(len, documents))
    if n_bytes < MIN_BYTES:
        return Choice(spec, own)
    reasons: list[str] = []
    for engine in FASTER_ENGINES:
        try:
            fast = run_on_engine(own, engine)
        except MissingExtra:
            continue
        except EngineDeclines as error:
            reasons.append(f"{engine} cannot run it ({error})")
            continue
        difference, compared = _compare(own, fast, engine, documents)
        if difference is None:
            sentence = f"{engine} tokenises: it gave the same ids as tokenizers on {compared}."
            return Choice(replace(spec, engine=engine), fast, sentence)
        reasons.append(f"{engine} gives other ids on the text {difference}")
    if not reasons:
        missing = "tokenizers tokenises; a faster engine is not installed (pip install 'fastpack-llm[gigatoken]')."
        return Choice(spec, own, missing)
    return Choice(spec, own, f"tokenizers tokenises: {'; '.join(reasons)}.")


def _compare(own: Tokenizer, fast: Tokenizer, engine: str, documents: Sequence[str]) -> tuple[str | None, str]:
    """Compare an engine with `own`; return the first text with other ids, if any, and what was compared.

    The probe texts are compared once for each tokenizer, engine and version of both; then fewer documents are compared,
    because the audit compares further ones during the run.
    """
    assert isinstance(own, HFTokenizer)
    proof = EngineProof(own, engine)
    if proof.exists():
        some = _evenly(documents, COMPARED_BYTES_IF_PROVEN)
        with single_threaded():  # a process without threads can fork its workers
            difference = first_difference(own, fast, some)
        return difference, f"{len(some)} of the documents, and in an earlier run on probe texts"
    some, probes = _evenly(documents, COMPARED_BYTES), probe_texts(_literals(own))
    difference = first_difference(own, fast, [*probes, *some])
    if difference is None:
        proof.keep()
    return difference, f"{len(some)} of the documents and {len(probes)} probe texts"


def first_difference(own: Tokenizer, fast: Tokenizer, texts: Sequence[str]) -> str | None:
    """Return the first text with different ids, shortened and quoted; None if there is none."""
    for step in _steps(texts):
        if not _same_ids(own, fast, step):
            return next((quoted(text) for text in step if not _same_ids(own, fast, [text])), quoted("".join(step)))
    return None


def _evenly(documents: Sequence[str], n_bytes: int) -> Sequence[str]:
    return documents[:: max(1, sum(map(len, documents)) // n_bytes)]


def _steps(texts: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while step := list(islice(remaining, TEXTS_PER_STEP)):
        yield step


def _same_ids(own: Tokenizer, fast: Tokenizer, texts: Sequence[str]) -> bool:
    try:
        tokens, lengths = own.encode_many(texts)
    except FaultyText:
        return True  # engines pass texts that they refuse to the tokenizer's own library
    found, found_lengths = fast.encode_many(texts)
    return np.array_equal(lengths, found_lengths) and np.array_equal(tokens, found)


def _literals(own: HFTokenizer) -> list[str]:
    """Return the added tokens, which the tokenizer finds in texts; of very many, the first and the last."""
    literals = [token.content for token in own.backend.get_added_tokens_decoder().values()]
    return literals if len(literals) <= 2 * MAX_LITERALS else literals[:MAX_LITERALS] + literals[-MAX_LITERALS:]
