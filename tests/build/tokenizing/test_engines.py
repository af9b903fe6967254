"""Engines: the very ids of `tokenizers`, or none."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from fastpack.build.index import create_raw_index
from fastpack.build.packing.pack import pack_encoded_data
from fastpack.build.tokenizing import engines
from fastpack.build.tokenizing.engines import ENGINES, Choice, choose_engine, first_difference, run_on_engine
from fastpack.build.tokenizing.gigatoken_engine import FEW_TEXTS, GigatokenTokenizer
from fastpack.build.tokenizing.hard_texts import LONG, hard_texts
from fastpack.build.tokenizing.hf_tokenizer import HFTokenizer
from fastpack.build.tokenizing.interface import BytesTokenizer, EngineDeclines, FaultyText, TokenizerSpec
from fastpack.build.tokenizing.tiktoken_engine import MAX_BLANKS, TiktokenTokenizer
from fastpack.errors import MissingExtra

HF = "pretrained_hf_tokenizer"
EOD = "<|endoftext|>"
GOLDEN = Path(__file__).parents[2] / "golden/modalities/tokenizers/tok_bpe2000"
KINDS = ("gpt2", "llama3", "qwen", "pairs")
FASTER = ("gigatoken", "tiktoken")
Pair = tuple[HFTokenizer, Any]

_PIECES = [
    EOD,
    "<|im_start|>",
    "</think>",
    "<|begin|>",
    "'s",
    "'LL",
    "\u017f",
    "e\u0301",
    "\u0301",
    "\r\n",
    "  ",
    "12345",
]
_PIECES += [
    "\u3000",
    "\U0001f468\u200d\U0001f469",
    "\u088f",
    "\U00010940",
    "\x00",
    "\ufffd",
    "def f(self):\n    ",
    "\t",
]
TEXTS = st.lists(st.one_of(st.sampled_from(_PIECES), st.text(st.characters(exclude_categories=["Cs"])))).map("".join)


def spec_of(path: Path, **options: Any) -> TokenizerSpec:
    return TokenizerSpec(HF, {"pretrained_model_name_or_path": str(path), **options})


def choose(spec: TokenizerSpec, engine: str, sample: Callable[[], Sequence[str]]) -> Choice:
    return choose_engine(spec, spec.build(), engine, sample)


def built(spec: TokenizerSpec) -> HFTokenizer:
    tokenizer = spec.build()
    assert isinstance(tokenizer, HFTokenizer)
    return tokenizer


@pytest.fixture(scope="module")
def both(tokenizer_files: dict[str, Path]) -> dict[tuple[str, str], Pair]:
    """Each kind on its own library and on each engine."""
    own = {kind: built(spec_of(tokenizer_files[kind])) for kind in KINDS}
    return {(kind, engine): (own[kind], run_on_engine(own[kind], engine)) for kind in KINDS for engine in FASTER}


def assert_alike(pair: Pair, texts: Sequence[str], eod: int | None) -> None:
    (expected, expected_lengths), (found, lengths) = (tokenizer.encode_many(texts, eod) for tokenizer in pair)
    assert lengths.tolist() == expected_lengths.tolist()
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_texts_give_the_same_ids(kind: str, engine: str, both: dict[tuple[str, str], Pair]) -> None:
    pair = both[kind, engine]
    literals = [token.content for token in pair[0].backend.get_added_tokens_decoder().values()]
    assert_alike(pair, hard_texts(literals), pair[0].eod_id(EOD))


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(st.lists(TEXTS, max_size=4), st.booleans())
def test_any_text_gives_the_same_ids(
    kind: str, engine: str, both: dict[tuple[str, str], Pair], texts: list[str], ends: bool
) -> None:
    pair = both[kind, engine]
    assert_alike(pair, texts, pair[0].eod_id(EOD) if ends else None)
    assert_alike(pair, texts + ["x"] * FEW_TEXTS, pair[0].eod_id(EOD) if ends else None)


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
        assert_alike(both[kind, engine], texts[i : i + 20_000], None)


@pytest.mark.parametrize("engine", FASTER)
def test_the_golden_tokenizer(engine: str) -> None:
    own = built(spec_of(GOLDEN))
    assert first_difference(own, run_on_engine(own, engine), hard_texts([EOD])) is None


@pytest.mark.parametrize("engine", FASTER)
def test_what_sets_the_file_is_the_tokenizers_own(engine: str, both: dict[tuple[str, str], Pair]) -> None:
    own, fast = both["llama3", engine]
    assert (fast.vocab_size, fast.eod_id(EOD)) == (own.vocab_size, own.eod_id(EOD))
    with pytest.raises(ValueError, match="single token id"):
        fast.eod_id("no such token")


@pytest.mark.parametrize("engine", FASTER)
def test_a_text_that_is_no_unicode_is_faulty(engine: str, both: dict[tuple[str, str], Pair]) -> None:
    _, fast = both["gpt2", engine]
    for texts in (["\ud800"], ["fine", "x\udfff"], ["fine"] * FEW_TEXTS + ["\ud800"]):
        with pytest.raises(FaultyText):
            fast.encode_many(texts)


class PanicException(BaseException):
    """As Rust's, which no module holds."""


@pytest.mark.parametrize(("engine", "method"), [("gigatoken", "encode"), ("tiktoken", "encode_to_numpy")])
@pytest.mark.parametrize("error", [PanicException("stack"), ValueError("odd")])
def test_an_engine_that_fails_is_stood_in_for(
    engine: str, method: str, error: BaseException, tokenizer_files: dict[str, Path]
) -> None:
    own = built(spec_of(tokenizer_files["gpt2"]))
    fast: Any = run_on_engine(own, engine)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    fast._engine = SimpleNamespace(**{method: fail})
    assert_alike((own, fast), ["some text", ""], 0)


@pytest.mark.parametrize("engine", FASTER)
def test_an_interrupt_is_no_refusal(engine: str, tokenizer_files: dict[str, Path]) -> None:
    fast: Any = run_on_engine(built(spec_of(tokenizer_files["gpt2"])), engine)

    def interrupt(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    fast._engine = SimpleNamespace(encode=interrupt, encode_to_numpy=interrupt)
    with pytest.raises(KeyboardInterrupt):
        fast.encode_many(["text"])


def test_blanks_that_overflow_tiktoken(both: dict[tuple[str, str], Pair], capfd: pytest.CaptureFixture[str]) -> None:
    texts = ["a", "x" + " " * 1_000_000 + "y", "\r\n" * MAX_BLANKS, " " * LONG, "b"]
    assert_alike(both["gpt2", "tiktoken"], texts, 0)
    assert capfd.readouterr().err == ""


def changed(path: Path, change: Callable[[dict[str, Any]], None], target: Path) -> Path:
    description = json.loads(path.read_text(encoding="utf-8"))
    change(description)
    target.write_text(json.dumps(description), encoding="utf-8")
    return target


def _dropout(tree: dict[str, Any]) -> None:
    tree["model"]["dropout"] = 0.1


def _strips(tree: dict[str, Any]) -> None:
    tree["added_tokens"][0]["lstrip"] = True


def _begins(tree: dict[str, Any]) -> None:
    longer = {**tree["added_tokens"][0], "content": EOD + "x", "id": 3000}
    tree["added_tokens"].append(longer)


def _two_passes(tree: dict[str, Any]) -> None:
    tree["added_tokens"].append({**tree["added_tokens"][0], "content": "odd", "id": 3000, "normalized": True})


def _lowercases(tree: dict[str, Any]) -> None:
    tree["normalizer"] = {"type": "Lowercase"}


def _prefix(tree: dict[str, Any]) -> None:
    tree["pre_tokenizer"]["add_prefix_space"] = True


def _swapped(tree: dict[str, Any]) -> None:
    vocab, merges = tree["model"]["vocab"], tree["model"]["merges"]
    a, b = ("".join(merges[i]) for i in (5, 900))
    vocab[a], vocab[b] = vocab[b], vocab[a]


def _no_byte(tree: dict[str, Any]) -> None:
    del tree["model"]["vocab"]["\u0100"]


def _odd_pattern(tree: dict[str, Any]) -> None:
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": "(?<x>a)|(?!\\k<x>)\\X+"}, "behavior": "Isolated", "invert": False}
    tree["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_]}


@pytest.mark.parametrize("change", [_dropout, _strips, _begins, _two_passes, _lowercases, _prefix, _swapped, _no_byte])
def test_what_tiktoken_cannot_express_it_declines(
    change: Callable[[dict[str, Any]], None], tokenizer_files: dict[str, Path], tmp_path: Path
) -> None:
    path = changed(tokenizer_files["gpt2"], change, tmp_path / "tokenizer.json")
    with pytest.raises(EngineDeclines, match=r"its|it is"):
        run_on_engine(built(spec_of(path)), "tiktoken")


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize(
    "change", [_strips, _begins, _two_passes, _lowercases, _prefix, _swapped, _no_byte, _odd_pattern]
)
def test_what_an_engine_takes_it_does_alike(
    engine: str, change: Callable[[dict[str, Any]], None], tokenizer_files: dict[str, Path], tmp_path: Path
) -> None:
    spec = spec_of(changed(tokenizer_files["gpt2"], change, tmp_path / "tokenizer.json"))
    try:
        chosen, _, _ = choose(spec, engine, list)
    except ValueError:
        return
    own = built(spec)
    assert first_difference(own, chosen.build(), [*_PIECES, *(a + b for a in _PIECES for b in _PIECES)]) is None


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"truncation": True, "max_length": 8}, None),
        ({"padding": "max_length", "max_length": 8, "special_tokens": {"pad_token": EOD}}, None),
        ({}, _dropout),
    ],
)
def test_options_that_no_engine_has(
    engine: str, options: dict[str, Any], change: Any, tokenizer_files: dict[str, Path], tmp_path: Path
) -> None:
    path = changed(tokenizer_files["gpt2"], change, tmp_path / "x.json") if change else tokenizer_files["gpt2"]
    with pytest.raises(ValueError, match=f"the engine {engine} cannot run this tokenizer: it"):
        choose(spec_of(path, **options), engine, list)


@pytest.mark.parametrize("engine", FASTER)
def test_other_models_are_declined(engine: str, tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1, EOD: 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "words.json"))
    with pytest.raises(ValueError, match="cannot run this tokenizer"):
        choose(spec_of(tmp_path / "words.json"), engine, list)


@pytest.mark.parametrize("engine", FASTER)
def test_a_template_that_repeats_the_text_is_declined(
    engine: str, tokenizer_files: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_files["gpt2"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        f"a $A {EOD}", None, [("a", tokenizer.token_to_id("a")), (EOD, 0)]
    )
    tokenizer.save(str(tmp_path / "x.json"))
    with pytest.raises(ValueError, match="cannot run this tokenizer: its post-processor"):
        choose(spec_of(tmp_path / "x.json"), engine, list)


@pytest.mark.parametrize("engine", FASTER)
def test_tokens_of_many_kinds_found_in_text(engine: str, tokenizer_files: dict[str, Path], tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_files["gpt2"]))
    odd = [AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("word", single_word=True)]
    tokenizer.add_tokens(odd)
    tokenizer.save(str(tmp_path / "x.json"))
    try:
        chosen, _, _ = choose(spec_of(tmp_path / "x.json"), engine, list)
    except ValueError:
        return
    texts = ["a <l> b", "a  <r>  b", "word words sword _word", "<l><r>word", " <l>\n<r>\t"]
    assert first_difference(built(spec_of(tmp_path / "x.json")), chosen.build(), texts) is None


def documents(n: int = 50) -> list[str]:
    return [Path(json.__file__).parent.joinpath("decoder.py").read_text(encoding="utf-8") * 4] * n


def test_auto_takes_the_first_engine_that_is_proved(tokenizer_files: dict[str, Path]) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    chosen, _, sentence = choose(spec, "auto", documents)
    assert (spec.engine, chosen.engine) == ("tokenizers", "gigatoken")
    assert sentence is not None
    assert "gigatoken tokenises: it gave the same ids as tokenizers" in sentence
    assert isinstance(chosen.build(), GigatokenTokenizer)


def test_auto_leaves_little_text_to_the_tokenizers_own_library(tokenizer_files: dict[str, Path]) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    assert choose(spec, "auto", lambda: ["a little text"])[::2] == (spec, None)


def plant(monkeypatch: pytest.MonkeyPatch, kind: type[Any], word: str) -> None:
    """Make an engine err by one id on texts with `word`."""
    right = kind.encode_many

    def wrong(self: Any, texts: Sequence[str], eod: int | None = None) -> Any:
        tokens, lengths = right(self, texts, eod)
        if any(word in text for text in texts):
            tokens = tokens.copy()
            tokens[len(tokens) // 2] += 1
        return tokens, lengths

    monkeypatch.setattr(kind, "encode_many", wrong)


@pytest.mark.parametrize("word", ["JSONDecoder", "\u3053\u3093\u306b\u3061\u306f"])
def test_a_planted_difference_is_caught(
    word: str, tokenizer_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    plant(monkeypatch, GigatokenTokenizer, word)
    chosen, _, sentence = choose(spec, "auto", documents)
    assert chosen.engine == "tiktoken"
    plant(monkeypatch, TiktokenTokenizer, word)
    chosen, _, sentence = choose(spec, "auto", documents)
    assert chosen == spec
    assert sentence is not None
    assert sentence.startswith("tokenizers tokenises: gigatoken gives other ids on the text '")
    assert "; tiktoken gives other ids" in sentence
    with pytest.raises(ValueError, match="gigatoken gives other ids than tokenizers, on the text"):
        choose(spec, "gigatoken", documents)


@pytest.fixture
def without_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in FASTER:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.mark.usefixtures("without_engines")
def test_engines_that_are_not_installed(tokenizer_files: dict[str, Path]) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    chosen, _, sentence = choose(spec, "auto", documents)
    assert chosen == spec
    assert sentence is not None
    assert "not installed (pip install 'fastpack[gigatoken]')" in sentence
    for engine in FASTER:
        with pytest.raises(MissingExtra, match=rf"fastpack\[{engine}\]"):
            choose(spec, engine, documents)


OWN = BytesTokenizer()  # stands for any


def refused_sample() -> list[str]:
    raise AssertionError("no sample is needed")


@pytest.mark.parametrize(
    ("variant_key", "engine", "message"),
    [
        (HF, "sentencepiece", "sentencepiece does not fit: pretrained_hf_tokenizer runs on tokenizers"),
        ("pretrained_sp_tokenizer", "tokenizers", "does not fit: pretrained_sp_tokenizer runs on sentencepiece alone"),
        ("pretrained_sp_tokenizer", "gigatoken", "does not fit: pretrained_sp_tokenizer runs on sentencepiece alone"),
        ("builtin_bytes", "tiktoken", "does not fit: builtin_bytes needs none"),
        (HF, "fastest", "unknown engine 'fastest': choose one of auto, tokenizers"),
    ],
)
def test_engines_that_do_not_fit(variant_key: str, engine: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_engine(TokenizerSpec(variant_key), OWN, engine, refused_sample)


@pytest.mark.parametrize(
    ("variant_key", "engine"),
    [
        (HF, "tokenizers"),
        ("llm_gym_tokenizer", "tokenizers"),
        ("pretrained_sp_tokenizer", "sentencepiece"),
        ("pretrained_sp_tokenizer", "auto"),
        ("builtin_bytes", "auto"),
    ],
)
def test_a_tokenizers_own_library_needs_no_proof(variant_key: str, engine: str) -> None:
    spec = TokenizerSpec(variant_key, {"x": 1})
    assert engine in ENGINES
    assert choose_engine(spec, OWN, engine, refused_sample) == (spec, OWN, None)


def test_an_engine_in_a_spec_that_does_not_run_it(tokenizer_files: dict[str, Path]) -> None:
    path = str(tokenizer_files["gpt2"])
    with pytest.raises(EngineDeclines, match="does not run this kind"):
        TokenizerSpec(HF, {"pretrained_model_name_or_path": path}, "sentencepiece").build()
    with pytest.raises(EngineDeclines, match="does not run this kind"):
        TokenizerSpec("builtin_bytes", {}, "gigatoken").build()


@pytest.mark.parametrize("engine", FASTER)
def test_packing_gives_the_same_bytes(engine: Any, tmp_path: Path) -> None:
    texts = [*hard_texts([EOD])[:400], *documents(3), "\u088f young", ""]
    lines = [json.dumps({"text": text}) for text in texts] + ['{"text": null}', "no JSON", '{"text": "\\ud800"}']
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    create_raw_index(tmp_path / "x.jsonl", validate=False)
    packed = {}
    for name in ("tokenizers", engine):
        packing = {
            "src_path": str(tmp_path / "x.jsonl"),
            "dst_path": str(tmp_path / f"{name}.pbin"),
            "jq_pattern": ".text",
            "num_cpus": 1,
            "eod_token": EOD,
        }
        tokenizer = {"variant_key": HF, "config": {"pretrained_model_name_or_path": str(GOLDEN)}}
        result = pack_encoded_data({"settings": packing, "tokenizer": tokenizer}, engine=name)
        packed[name] = (tmp_path / f"{name}.pbin").read_bytes(), result.skipped, result.documents
        assert result.engine == name
    assert packed["tokenizers"] == packed[engine]
    assert len(packed[engine][1]) == 5


def test_the_sample_is_thinned_evenly() -> None:
    texts = [str(i) * 1000 for i in range(10)] * 1000
    thinned = engines._evenly(texts)
    assert sum(map(len, thinned)) <= 2 * engines.PROVED_BYTES
    assert set(thinned) == set(texts[:10])
