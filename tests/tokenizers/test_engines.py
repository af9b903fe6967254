"""Engines give the ids of `tokenizers`, or decline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tokenizer_specs import EOD, FASTER, PIECES, built, spec_of

from fastpack.tokenizers.engines import first_difference, run_on_engine
from fastpack.tokenizers.gigatoken_engine import FEW_TEXTS
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import FaultyText
from fastpack.tokenizers.probe_texts import LONG, probe_texts
from fastpack.tokenizers.tiktoken_engine import MAX_BLANKS

GOLDEN = Path(__file__).parents[1] / "golden/modalities/tokenizers/tok_bpe2000"
KINDS = ("gpt2", "llama3", "qwen", "pairs")
Pair = tuple[HFTokenizer, Any]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(st.characters(exclude_categories=["Cs"])))).map("".join)


@pytest.fixture(scope="module")
def both(tokenizer_files: dict[str, Path]) -> dict[tuple[str, str], Pair]:
    """Return each kind of tokenizer on the reference library and on each engine."""
    reference = {kind: built(spec_of(tokenizer_files[kind])) for kind in KINDS}
    return {
        (kind, engine): (reference[kind], run_on_engine(reference[kind], engine)) for kind in KINDS for engine in FASTER
    }


def assert_same_ids(pair: Pair, texts: Sequence[str], eod: int | None) -> None:
    (expected, expected_lengths), (found, lengths) = (tokenizer.encode_many(texts, eod) for tokenizer in pair)
    assert lengths.tolist() == expected_lengths.tolist()
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize("kind", KINDS)
def test_probe_texts_give_the_same_ids(kind: str, engine: str, both: dict[tuple[str, str], Pair]) -> None:
    pair = both[kind, engine]
    literals = [token.content for token in pair[0].backend.get_added_tokens_decoder().values()]
    assert_same_ids(pair, probe_texts(literals), pair[0].eod_id(EOD))


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(st.lists(TEXTS, max_size=4), st.booleans())
def test_any_text_gives_the_same_ids(
    kind: str, engine: str, both: dict[tuple[str, str], Pair], texts: list[str], ends: bool
) -> None:
    pair = both[kind, engine]
    assert_same_ids(pair, texts, pair[0].eod_id(EOD) if ends else None)
    assert_same_ids(pair, texts + ["x"] * FEW_TEXTS, pair[0].eod_id(EOD) if ends else None)


@pytest.mark.slow
@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize("kind", ["llama3", "qwen", "pairs"])
@pytest.mark.parametrize("form", ["%s's1", "!%sab%s1", "1%s2%s!", " %s  %s\n", "q\u0327%s\u0301", "%s\u0323\u0307"])
def test_every_code_point_gives_the_same_ids(
    kind: str, engine: str, form: str, both: dict[tuple[str, str], Pair]
) -> None:
    codes = [*range(0xD800), *range(0xE000, 0x34000), *range(0xDFFF0, 0xE0200), *range(0x34000, 0x110000, 997)]
    texts = [form.replace("%s", chr(code)) for code in codes]
    for i in range(0, len(texts), 20_000):
        assert_same_ids(both[kind, engine], texts[i : i + 20_000], None)


@pytest.mark.parametrize("engine", FASTER)
def test_golden_tokenizer(engine: str) -> None:
    own = built(spec_of(GOLDEN))
    assert first_difference(own, run_on_engine(own, engine), probe_texts([EOD])) is None


@pytest.mark.parametrize("engine", FASTER)
def test_vocabulary_size_and_eod_id_equal_the_reference(engine: str, both: dict[tuple[str, str], Pair]) -> None:
    own, fast = both["llama3", engine]
    assert (fast.vocab_size, fast.eod_id(EOD)) == (own.vocab_size, own.eod_id(EOD))
    with pytest.raises(ValueError, match="single token id"):
        fast.eod_id("no such token")


@pytest.mark.parametrize("engine", FASTER)
def test_lone_surrogates_are_faulty(engine: str, both: dict[tuple[str, str], Pair]) -> None:
    _, fast = both["gpt2", engine]
    for texts in (["\ud800"], ["fine", "x\udfff"], ["fine"] * FEW_TEXTS + ["\ud800"]):
        with pytest.raises(FaultyText):
            fast.encode_many(texts)


class PanicException(BaseException):
    """Stand-in for the exception of Rust panics, which no module exports."""


@pytest.mark.parametrize(("engine", "method"), [("gigatoken", "encode"), ("tiktoken", "encode_to_numpy")])
@pytest.mark.parametrize("error", [PanicException("stack"), ValueError("odd")])
def test_failing_engine_falls_back_to_the_reference(
    engine: str, method: str, error: BaseException, tokenizer_files: dict[str, Path]
) -> None:
    own = built(spec_of(tokenizer_files["gpt2"]))
    fast: Any = run_on_engine(own, engine)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    fast._engine = SimpleNamespace(**{method: fail})
    assert_same_ids((own, fast), ["some text", ""], 0)


@pytest.mark.parametrize("engine", FASTER)
def test_interrupt_is_not_a_fallback(engine: str, tokenizer_files: dict[str, Path]) -> None:
    fast: Any = run_on_engine(built(spec_of(tokenizer_files["gpt2"])), engine)

    def interrupt(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    fast._engine = SimpleNamespace(encode=interrupt, encode_to_numpy=interrupt)
    with pytest.raises(KeyboardInterrupt):
        fast.encode_many(["text"])


def test_long_whitespace_does_not_overflow_tiktoken(
    both: dict[tuple[str, str], Pair], capfd: pytest.CaptureFixture[str]
) -> None:
    texts = ["a", "x" + " " * 1_000_000 + "y", "\r\n" * MAX_BLANKS, " " * LONG, "b"]
    assert_same_ids(both["gpt2", "tiktoken"], texts, 0)
    assert capfd.readouterr().err == ""
