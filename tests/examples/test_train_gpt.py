"""A training run: the loss falls, attention stays within documents, other numbers of ranks resume the same stream."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the example trains with torch, which is not installed")

import fastpack  # noqa: E402

STEPS, STOP = 40, 17


@pytest.fixture(scope="module")
def example(load_example: Callable[[str], ModuleType]) -> ModuleType:
    return load_example("train_gpt")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack functions of the standard library, one document each; short, so that rows contain several documents."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [inspect.getsource(value) for value in vars(inspect).values() if inspect.isfunction(value)]
    texts += [inspect.getsource(value) for value in vars(json.decoder).values() if inspect.isfunction(value)]
    source = folder / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return Path(fastpack.pack(source, tokenizer="bytes").path)


def run(example: ModuleType, corpus: Path, checkpoint: Path, *words: str) -> list[float]:
    fixed = [str(corpus), "--steps", str(STEPS), "--seq-len", "64", "--checkpoint", str(checkpoint)]
    losses: list[float] = example.train(example.parse([*fixed, *words]))
    return losses


def test_a_resumed_run_on_other_ranks_equals_an_uninterrupted_run(
    example: ModuleType, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)  # more threads are slower at this size
    unbroken = run(example, corpus, tmp_path / "whole.pt", "--ranks", "4", "--batch-size", "4")
    assert len(unbroken) == STEPS
    assert sum(unbroken[-5:]) < 0.8 * sum(unbroken[:5])
    halves = run(example, corpus, tmp_path / "a.pt", "--ranks", "4", "--batch-size", "4", "--stop-at", str(STOP))
    saved = torch.load(tmp_path / "a.pt", weights_only=True)
    assert saved["loader"]["elastic"]["consumed"] == STOP * 16
    halves += run(example, corpus, tmp_path / "a.pt", "--ranks", "2", "--batch-size", "8", "--resume")
    # the same samples, in another order of summation
    assert halves == pytest.approx(unbroken, rel=2e-3)
    moved = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("replacing a document")]
    assert len(moved) == 3
    for words in moved:
        assert float(words[words.index("by") + 1].rstrip(";")) == 0
        assert float(words[-1]) > 0.01


def test_a_run_on_planned_rows_resumes_on_other_ranks(
    example: ModuleType, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    unbroken = run(example, corpus, tmp_path / "whole.pt", "--planned")
    assert sum(unbroken[-5:]) < 0.8 * sum(unbroken[:5])
    halves = run(example, corpus, tmp_path / "a.pt", "--planned", "--stop-at", str(STOP))
    halves += run(example, corpus, tmp_path / "a.pt", "--planned", "--ranks", "2", "--batch-size", "8", "--resume")
    assert halves == pytest.approx(unbroken, rel=2e-3)
    assert capsys.readouterr().out.count("changes the outputs of later ones by 0;") == 3


def test_the_stream_of_samples_is_the_same(example: ModuleType, corpus: Path) -> None:
    def stream(loaders: list[Any], steps: int) -> list[list[list[int]]]:
        batches = [[next(loader)["input_ids"].tolist() for _ in range(steps)] for loader in map(iter, loaders)]
        return [sorted(row for rank in batches for row in rank[step]) for step in range(steps)]

    first = example.make_loaders(example.parse([str(corpus), "--seq-len", "64", "--ranks", "4", "--batch-size", "2"]))
    expected = stream(first, 9)
    again = example.make_loaders(example.parse([str(corpus), "--seq-len", "64", "--ranks", "4", "--batch-size", "2"]))
    assert stream(again, 4) == expected[:4]
    other = example.make_loaders(example.parse([str(corpus), "--seq-len", "64", "--ranks", "8", "--batch-size", "1"]))
    for loader in other:
        loader.load_state_dict(again[3].state_dict())
    assert stream(other, 5) == expected[4:]
    for loader in (*first, *again, *other):
        loader.close()


def test_a_run_in_megatrons_order_learns_and_resumes_on_other_ranks(
    example: ModuleType, corpus: Path, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    whole = run(example, corpus, tmp_path / "whole.pt", "--megatron", "--ranks", "4", "--batch-size", "4")
    assert sum(whole[-5:]) < 0.8 * sum(whole[:5])
    words = ("--megatron", "--ranks", "4", "--batch-size", "4", "--stop-at", str(STOP))
    halves = run(example, corpus, tmp_path / "a.pt", *words)
    halves += run(example, corpus, tmp_path / "a.pt", "--megatron", "--ranks", "2", "--batch-size", "8", "--resume")
    assert halves == pytest.approx(whole, rel=2e-3)
