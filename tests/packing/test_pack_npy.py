"""A target that ends in .npy: the tokens of the packed file after a NumPy header."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli
from pack_sources import batch_bytes, config_to, disk_full_after, settings_of

import fastpack
from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.ranks import run_rank
from fastpack.packing.pack import pack_each, pack_encoded_data

EOD = 256


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    texts = [f"{'word ' * (number % 9)}{number}" for number in range(400)]
    path.write_text("".join(json.dumps({"text": text if k % 50 else ""}) + "\n" for k, text in enumerate(texts)))
    return path


def packed_tokens(corpus: Path) -> np.ndarray:
    pack_encoded_data(config_to([corpus], corpus.with_suffix(".pbin")), if_exists="overwrite")
    return fastpack.PackedFile(corpus.with_suffix(".pbin")).data


def saved(tokens: np.ndarray, path: Path) -> bytes:
    np.save(path, tokens)
    return path.read_bytes()


def test_bytes_equal_numpy_save(corpus: Path, tmp_path: Path) -> None:
    result = pack_encoded_data(config_to([corpus], tmp_path / "x.npy"))
    tokens = packed_tokens(corpus)
    assert (tmp_path / "x.npy").read_bytes() == saved(tokens, tmp_path / "expected.npy")
    assert (result.documents, result.tokens, len(result.skipped)) == (392, len(tokens), 8)
    dataset = fastpack.MemoryMappedDataset(tmp_path, 100, "x.npy", pack_sequences=True, eos_token_id=EOD)
    assert len(dataset) == len(tokens) // 100
    np.testing.assert_array_equal(dataset[3]["input_ids"], tokens[300:399])
    assert dataset[3]["doc_ids"][-1] > 0
    assert fastpack.verify(tmp_path / "x.npy", vocab_size=257, eos_token_id=EOD).is_sound


def test_resume(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_bytes(monkeypatch, 1000)
    config = config_to([corpus], tmp_path / "x.npy")
    with pytest.raises(OSError, match="No space"):
        pack_encoded_data(config, resume=True, progress=disk_full_after(0.4))
    assert not (tmp_path / "x.npy").exists()
    result = pack_encoded_data(config, resume=True)
    assert 0 < result.resumed_documents < result.documents == 392
    assert (tmp_path / "x.npy").read_bytes() == saved(packed_tokens(corpus), tmp_path / "expected.npy")


def test_ranks_give_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    plan = plan_pack(settings_of(config_to([corpus], tmp_path / "x.npy")), bytes_per_task=3000)
    assert len(plan.tasks) > 2
    run_rank(plan, 0, 1)
    (result,) = collect_pack(plan)
    tokens = packed_tokens(corpus)
    assert (result.documents, result.tokens) == (392, len(tokens))
    assert (tmp_path / "x.npy").read_bytes() == saved(tokens, tmp_path / "expected.npy")


def test_small_vocabularies_use_two_bytes_per_token(tmp_path: Path, cli: Cli) -> None:
    words = {"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[E]": 2}, "unk_token": "[E]"}}
    words |= {"pre_tokenizer": {"type": "Whitespace"}, "version": "1.0"}
    words |= {"added_tokens": [{"id": 2, "content": "[E]", "special": True}]}
    for token in words["added_tokens"]:
        token |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    (tmp_path / "c.jsonl").write_text('{"text": "a b"}\n{"text": "b"}\n')
    words_of = ["pack", str(tmp_path / "c.jsonl"), "--tokenizer", str(tmp_path / "tokenizer.json"), "--eod-token=[E]"]
    assert cli.json(*words_of, "-o", tmp_path / "x.npy", "--dry-run")["files"][0]["token_size_in_bytes"] == 2
    for name in ("x.npy", "x.pbin"):
        cli(*words_of, "-o", tmp_path / name, "-q")
    shard = np.load(tmp_path / "x.npy")
    assert (shard.dtype, shard.tolist()) == (np.uint16, [0, 1, 2, 1, 2])
    assert fastpack.PackedFile(tmp_path / "x.pbin").token_size_in_bytes == 1


def test_no_documents_give_an_empty_shard(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("")
    assert pack_encoded_data(config_to([tmp_path / "c.jsonl"], tmp_path / "x.npy")).tokens == 0
    assert np.load(tmp_path / "x.npy").shape == (0,)


def test_npy_target_cannot_be_a_folder(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"into a separate \.pbin in this folder, whose name must not end in \.npy"):
        pack_each(config_to([corpus], tmp_path / "x.npy"))
