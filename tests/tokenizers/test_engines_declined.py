"""Engines decline tokenizers that they do not support, and give the same ids for all others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizer_specs import EOD, FASTER, PIECES, built, choose, spec_of
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from fastpack.tokenizers.engines import first_difference, run_on_engine
from fastpack.tokenizers.interface import EngineDeclines


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
def test_tiktoken_declines_unsupported_tokenizers(
    change: Callable[[dict[str, Any]], None], tokenizer_files: dict[str, Path], tmp_path: Path
) -> None:
    path = changed(tokenizer_files["gpt2"], change, tmp_path / "tokenizer.json")
    with pytest.raises(EngineDeclines, match=r"its|it is"):
        run_on_engine(built(spec_of(path)), "tiktoken")


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize(
    "change", [_strips, _begins, _two_passes, _lowercases, _prefix, _swapped, _no_byte, _odd_pattern]
)
def test_accepted_tokenizers_give_the_same_ids(
    engine: str, change: Callable[[dict[str, Any]], None], tokenizer_files: dict[str, Path], tmp_path: Path
) -> None:
    spec = spec_of(changed(tokenizer_files["gpt2"], change, tmp_path / "tokenizer.json"))
    try:
        chosen, _, _ = choose(spec, engine, list)
    except ValueError:
        return
    own = built(spec)
    assert first_difference(own, chosen.build(), [*PIECES, *(a + b for a in PIECES for b in PIECES)]) is None


@pytest.mark.parametrize("engine", FASTER)
@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"truncation": True, "max_length": 8}, None),
        ({"padding": "max_length", "max_length": 8, "special_tokens": {"pad_token": EOD}}, None),
        ({}, _dropout),
    ],
)
def test_options_that_no_engine_supports(
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
def test_template_that_adds_other_tokens_is_declined(
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
def test_added_tokens_with_options(engine: str, tokenizer_files: dict[str, Path], tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Unsupported model type\n\nLocation:\n    src/load_tokenizer/hf.rs:241:24", "Unsupported model type"),
        ("called `unwrap()` on a `None` value at src/a/b.rs:12:45", "called `unwrap()` on a `None` value"),
        ("a plain reason", "a plain reason"),
    ],
)
def test_messages_omit_rust_source_locations(text: str, shown: str) -> None:
    from fastpack.tokenizers.interface import FaultyText, refusals

    with pytest.raises(FaultyText) as refused, refusals():
        raise RuntimeError(text)
    assert str(refused.value) == f"the tokenizer refuses the text: {shown}"
