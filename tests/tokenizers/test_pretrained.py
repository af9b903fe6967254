"""Tokenizer classes of Modalities: the same results as the originals."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import fastpack
from fastpack.errors import MissingExtra

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "transformers/cases.json").read_text(encoding="utf-8"))
ANSWERS = json.loads((GOLDEN / "modalities/tokenizer_wrappers.json").read_text(encoding="utf-8"))
TEXTS = ["Hello world , this is n't 's ! fine ?", "x </s> <s> y <pad>", "Äöü 12 brown fox"]


def write_directory(folder: Path, name: str, **config: Any) -> str:
    directory = CASES["directories"][name]
    files = {**directory["files"], "tokenizer.json": CASES["tokenizers"][directory["tokenizer"]]}
    files["tokenizer_config.json"] = {**files["tokenizer_config.json"], **config}
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer['directory']}-{answer['cleans_up']}")
def test_results_equal_those_of_modalities(answer: dict[str, Any], tmp_path: Path) -> None:
    folder = write_directory(tmp_path, answer["directory"], clean_up_tokenization_spaces=answer["cleans_up"])
    tokenizer = fastpack.PreTrainedHFTokenizer(folder)
    assert [tokenizer.tokenize(text) for text in TEXTS] == answer["ids"]
    assert [tokenizer.decode(ids) for ids in answer["ids"]] == answer["decoded"]
    assert tokenizer.vocab_size == answer["vocab_size"]
    assert tokenizer.special_tokens == answer["special_tokens"]
    ids = range(tokenizer.vocab_size + 10)
    assert [i for i in ids if tokenizer.is_special_token_id(i)] == answer["special"]


def test_options_and_errors(tmp_path: Path) -> None:
    folder = write_directory(tmp_path, "gpt2")
    tokenizer = fastpack.PreTrainedHFTokenizer(folder, True, False, 3)
    assert len(tokenizer.tokenize("the quick brown fox and more")) == 3
    assert type(tokenizer.tokenize("fox")[0]) is int
    assert tokenizer.decode(tokenizer.tokenize("fox")[0]) == tokenizer.decode(tokenizer.tokenize("fox")[:1])
    with pytest.warns(UserWarning, match="same token id"):
        assert tokenizer.get_token_id("<|endoftext|>") in tokenizer.special_token_ids
    with pytest.raises(ValueError, match="refuses the text"):
        tokenizer.tokenize("\ud800")
    with pytest.raises(FileNotFoundError, match="neither a directory nor a"):
        fastpack.PreTrainedHFTokenizer("some/name")
    with pytest.raises(ValueError, match="padding"):
        fastpack.PreTrainedHFTokenizer(folder, padding="left")
    with pytest.raises(NotImplementedError, match="already known"):
        fastpack.PreTrainedHFTokenizer(folder, special_tokens={"pad_token": "no such token"})


def test_pickle(tmp_path: Path) -> None:
    tokenizer = fastpack.PreTrainedHFTokenizer(write_directory(tmp_path, "llama"), max_length=4, truncation=True)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.tokenize("the quick brown fox") == tokenizer.tokenize("the quick brown fox")
    assert (again.max_length, again.truncation, again.padding) == (4, True, False)


def test_sentencepiece(tmp_path: Path) -> None:
    import sentencepiece

    sentences = iter([text for text in CASES["texts"] if text] * 20)
    prefix = str(tmp_path / "small")
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=sentences, model_prefix=prefix, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    plain = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    tokenizer = pickle.loads(pickle.dumps(fastpack.PreTrainedSPTokenizer(f"{prefix}.model")))
    assert tokenizer.vocab_size == plain.vocab_size()
    for text in CASES["texts"]:
        assert tokenizer.tokenize(text) == plain.Encode(text)
        assert tokenizer.decode(plain.Encode(text)) == plain.Decode(plain.Encode(text))
    assert tokenizer.decode(5) == plain.Decode(5)
    assert tokenizer.get_token_id("</s>") == plain.eos_id()
    assert [tokenizer.is_special_token_id(i) for i in range(4)] == [plain.IsControl(i) for i in range(4)]
    with pytest.raises(ValueError, match="single token id"):
        tokenizer.get_token_id("no such piece")
    with pytest.raises(IndexError):
        tokenizer.is_special_token_id(10_000)


def test_missing_sentencepiece(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.model"):
        fastpack.PreTrainedSPTokenizer("absent.model")
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[sentencepiece\]"):
        fastpack.PreTrainedSPTokenizer("absent.model")
