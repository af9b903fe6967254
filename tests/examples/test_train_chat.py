"""Training on the tokens of the assistant lowers their loss only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="the example trains with torch, which is not installed")

import fastpack  # noqa: E402


def test_only_the_tokens_of_the_assistant_are_learned(
    load_example: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    example = load_example("train_chat")
    counted, others = example.train(example.parse([str(tmp_path / "chat"), "--steps", "60"]))
    assert counted < 1.5
    assert others > counted + 2
    with fastpack.PackedFile(tmp_path / "chat/sft.pbin") as file:
        mask = file.loss_mask
        assert mask is not None
        text = bytes(file.data[mask][:7].tolist()).decode()
    assert text[1] == "+"
    assert text[-1] == ";"
