"""Tokenizers give the ids of the reference libraries."""

from __future__ import annotations

import builtins
import json
import pickle
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fastpack.errors import MissingExtra
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.interface import token_size
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

HF, SP = "pretrained_hf_tokenizer", "pretrained_sp_tokenizer"
CASES = json.loads((Path(__file__).parents[1] / "golden/transformers/cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("vocab_size", "n_bytes"),
    [(1, 4), (2, 1), (255, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4), (1 << 24, 4), (1 << 32, 4)],
)
def test_token_size(vocab_size: int, n_bytes: int) -> None:
    assert token_size(vocab_size) == n_bytes


@pytest.mark.parametrize("vocab_size", [0, -1, (1 << 32) + 1])
def test_unsupported_token_sizes(vocab_size: int) -> None:
    with pytest.raises(ValueError, match="token"):
        token_size(vocab_size)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_byte_tokens_are_utf8_with_an_end_token(texts: list[str]) -> None:
    tokens, lengths = BytesTokenizer().encode_many(texts, 256)
    expected = [[*text.encode(), 256] if text else [] for text in texts]
    assert tokens.tolist() == [token for document in expected for token in document]
    assert lengths.tolist() == [len(document) for document in expected]
    tokens, lengths = BytesTokenizer().encode_many(texts)
    assert tokens.tolist() == list("".join(texts).encode())
    assert lengths.tolist() == [len(text.encode()) for text in texts]


def test_end_token_in_text_is_plain_bytes() -> None:
    tokenizer = TokenizerSpec("builtin_bytes").build()
    assert (tokenizer.vocab_size, tokenizer.eod_id("<|endoftext|>")) == (257, 256)
    tokens, _ = tokenizer.encode_many(["<|endoftext|>"], 256)
    assert bytes(tokens[:-1].tolist()) == b"<|endoftext|>"
    with pytest.raises(ValueError, match="one special token"):
        tokenizer.eod_id("</s>")


@pytest.mark.parametrize(
    ("variant_key", "config", "message"),
    [
        ("nope", {}, "unknown tokenizer 'nope'"),
        ("builtin_bytes", {"x": 1}, "config.x: builtin_bytes has no such option"),
        (HF, {}, "pretrained_model_name_or_path: found nothing"),
        (HF, {"pretrained_model_name_or_path": 5}, "pretrained_model_name_or_path: found 5"),
        (HF, {"pretrained_model_name_or_path": ".", "tokenizer_class": "x"}, "tokenizer_class: .* no such option"),
        (HF, {"pretrained_model_name_or_path": ".", "truncation": 1}, "truncation: found 1"),
        (HF, {"pretrained_model_name_or_path": ".", "padding": "left"}, "padding: found 'left'"),
        (HF, {"pretrained_model_name_or_path": ".", "max_length": -1}, "max_length: found -1"),
        (HF, {"pretrained_model_name_or_path": ".", "max_length": True}, "max_length: found True"),
        (HF, {"pretrained_model_name_or_path": ".", "special_tokens": []}, "special_tokens: found"),
        (SP, {"tokenizer_model_file": "x", "padding": False}, "config.padding: .* no such option"),
        (SP, {}, "tokenizer_model_file: found nothing"),
    ],
)
def test_rejected_options(variant_key: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenizerSpec(variant_key, config).build()


def test_hub_name_is_rejected_without_network_access() -> None:
    with pytest.raises(FileNotFoundError, match=r"openai-community/gpt2 is neither a directory"):
        TokenizerSpec(HF, {"pretrained_model_name_or_path": "openai-community/gpt2"}).build()


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the directories for which transformers made the golden cases."""
    root = tmp_path_factory.mktemp("tokenizers")
    for name, directory in CASES["directories"].items():
        (root / name).mkdir()
        files = {**directory["files"], "tokenizer.json": CASES["tokenizers"][directory["tokenizer"]]}
        for file, content in files.items():
            (root / name / file).write_text(json.dumps(content), encoding="utf-8")
    return root


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: f"{case['directory']}-{json.dumps(case['options'])}")
@pytest.mark.filterwarnings("ignore:The provided eod token")
def test_directories_are_read_as_by_transformers(case: dict[str, Any], directories: Path) -> None:
    spec = TokenizerSpec(HF, {"pretrained_model_name_or_path": str(directories / case["directory"]), **case["options"]})
    if "error" in case:
        with pytest.raises((ValueError, NotImplementedError), match=r"pad|known|Truncation|stride"):
            spec.build()
        return
    tokenizer = spec.build()
    tokens, lengths = tokenizer.encode_many(CASES["texts"])
    found = [ids.tolist() for ids in np.split(tokens, np.cumsum(lengths)[:-1])]
    assert found == case["ids"]
    assert found == [tokenizer.encode_many([text])[0].tolist() for text in CASES["texts"]]
    for token, token_id in case.get("eod", {}).items():
        if token_id is None:
            with pytest.raises(ValueError, match="not represented by a single token"):
                tokenizer.eod_id(token)
        else:
            assert tokenizer.eod_id(token) == token_id
    if "vocab_size" in case:
        assert tokenizer.vocab_size == case["vocab_size"]


def test_eod_token_equal_to_the_unknown_token_warns(directories: Path) -> None:
    tokenizer = TokenizerSpec(HF, {"pretrained_model_name_or_path": str(directories / "llama")}).build()
    with pytest.warns(UserWarning, match="same token id"):
        assert tokenizer.eod_id("no such token") == tokenizer.eod_id("<unk>")


def test_tokenizer_json_is_used_unchanged(directories: Path) -> None:
    from tokenizers import Tokenizer

    path = directories / "llama" / "tokenizer.json"
    tokenizer = TokenizerSpec(HF, {"pretrained_model_name_or_path": str(path)}).build()
    plain = Tokenizer.from_file(str(path))
    for text in CASES["texts"]:
        assert tokenizer.encode_many([text])[0].tolist() == plain.encode(text).ids
    # For the directory, its class has another template, without an end token.
    directory = TokenizerSpec(HF, {"pretrained_model_name_or_path": str(path.parent)}).build()
    assert directory.encode_many(["x"])[0].tolist() == plain.encode("x").ids[:-1]


def test_truncation_in_tokenizer_json_is_used_only_on_request(directories: Path) -> None:
    path = str(directories / "trunc_in_json" / "tokenizer.json")
    tokenizer = TokenizerSpec(HF, {"pretrained_model_name_or_path": path}).build()
    assert len(tokenizer.encode_many(["fox " * 30])[0]) >= 30  # the file truncates to 7 and pads to 20


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config.json": {"tokenizer_class": "SomeNewTokenizer"}}, "not known here"),
        ({"tokenizer_config.json": {}, "config.json": {"model_type": "mamba9"}}, "model type 'mamba9' is not known"),
        ({"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["x.Y", None]}}}, "custom code"),
        ({"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True}}, "SentencePiece"),
        ({"tokenizer_config.json": {"padding_side": "top"}}, "right or left"),
        ({"tokenizer_config.json": ["x"]}, "expected an object"),
        ({"tokenizer_config.json": {"eos_token": 5}}, "expected an added token"),
    ],
)
def test_rejected_directories(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(CASES["tokenizers"]["t0"]), encoding="utf-8")
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        TokenizerSpec(HF, {"pretrained_model_name_or_path": str(tmp_path)}).build()


def test_files_that_are_not_tokenizers(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json is not there"):
        TokenizerSpec(HF, {"pretrained_model_name_or_path": str(tmp_path)}).build()
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"not a tokenizer\.json"):
        TokenizerSpec(HF, {"pretrained_model_name_or_path": str(tmp_path)}).build()
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON that can be read"):
        TokenizerSpec(HF, {"pretrained_model_name_or_path": str(tmp_path)}).build()


def test_old_configuration_with_a_file_and_a_class(directories: Path) -> None:
    path = str(directories / "gpt2" / "tokenizer.json")
    tokenizer = TokenizerSpec("llm_gym_tokenizer", {"tokenizer_file": path}).build()
    expected = next(case for case in CASES["cases"] if case["directory"] == "gpt2" and not case["options"])
    for text, ids in zip(CASES["texts"], expected["ids"], strict=True):
        assert tokenizer.encode_many([text])[0].tolist() == ids
    with pytest.raises(FileNotFoundError, match="absent"):
        TokenizerSpec("llm_gym_tokenizer", {"tokenizer_file": "absent"}).build()


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import sentencepiece

    prefix = tmp_path_factory.mktemp("sp") / "small"
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([text for text in CASES["texts"] if text] * 20),
        model_prefix=str(prefix),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return prefix.with_suffix(".model")


def test_sentencepiece(sentencepiece_model: Path) -> None:
    import sentencepiece

    tokenizer = TokenizerSpec(SP, {"tokenizer_model_file": str(sentencepiece_model)}).build()
    plain = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_model))
    assert tokenizer.vocab_size == plain.vocab_size()
    eod = tokenizer.eod_id("</s>")
    assert eod == plain.eos_id()
    tokens, lengths = tokenizer.encode_many(CASES["texts"], eod)
    documents = np.split(tokens, np.cumsum(lengths)[:-1])
    assert [ids.tolist() for ids in documents] == [[*plain.Encode(t), eod] if t else [] for t in CASES["texts"]]
    with pytest.raises(ValueError, match="single token id"):
        tokenizer.eod_id("no such piece")


def test_sentencepiece_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.model"):
        TokenizerSpec(SP, {"tokenizer_model_file": "absent.model"}).build()
    (tmp_path / "x.model").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        TokenizerSpec(SP, {"tokenizer_model_file": str(tmp_path / "x.model")}).build()
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "sentencepiece":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[sentencepiece\]"):
        TokenizerSpec(SP, {"tokenizer_model_file": "absent.model"}).build()


def test_spec_can_be_pickled() -> None:
    spec = TokenizerSpec(HF, {"pretrained_model_name_or_path": "x", "padding": False})
    assert pickle.loads(pickle.dumps(spec)) == spec
