"""fastpack.torch.WebDataset: images are tensors, other fields are as without torch."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack

torch: Any = pytest.importorskip("torch")


def test_only_images_are_tensors(golden: Path) -> None:
    from fastpack.torch import WebDataset

    folder = golden / "energon" / "split"
    arrays, tensors = fastpack.WebDataset(folder), pickle.loads(pickle.dumps(WebDataset(folder)))
    assert len(tensors) == len(arrays)
    for one, other in zip(arrays, tensors, strict=True):
        assert type(other) is fastpack.CaptioningSample
        assert isinstance(other.image, torch.Tensor)
        assert other.image.dtype == torch.float32
        assert np.array_equal(other.image.numpy(), one.image)
        assert (other.__key__, other.caption) == (one.__key__, one.caption)
    assert isinstance(WebDataset(folder, image_decode="rgb8")[0].image, np.ndarray)
    crude = WebDataset(golden / "energon" / "reading", part_filter=["npy"])
    assert isinstance(crude.get_file("kinds.npy"), np.ndarray)


def test_the_torch_dataloader_makes_batches(golden: Path) -> None:
    from fastpack.torch import StatefulDataLoader, WebDataset

    dataset = WebDataset(golden / "energon" / "split", "train")

    def collate(samples: list[Any]) -> tuple[list[str], int]:
        return [sample.__key__ for sample in samples], sum(int(sample.image.numel()) for sample in samples)

    theirs = list(torch.utils.data.DataLoader(dataset, batch_size=2, collate_fn=collate, drop_last=True))
    ours = list(StatefulDataLoader(dataset, 2, range(len(dataset)), collate_fn=collate))
    assert ours == theirs
    assert len(ours) == len(dataset) // 2
