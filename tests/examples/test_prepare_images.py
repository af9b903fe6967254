"""The samples of the prepared dataset are the drawn pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fastpack


def test_pictures_match_their_captions(
    tmp_path: Path, load_example: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    example, folder = load_example("prepare_images"), tmp_path / "pictures"
    assert example.main([str(folder), "--samples", "31", "--shards", "5", "--batch-size", "4"]) == 0
    printed = capsys.readouterr()
    assert not printed.err
    assert "prepared 31 samples of 5 shards" in printed.out
    assert "train: 19 samples, 16 of them in 4 batches of 4" in printed.out

    splits = {split: fastpack.WebDataset(folder, split) for split in ("train", "val", "test")}
    assert {split: len(dataset) for split, dataset in splits.items()} == {"train": 19, "val": 6, "test": 6}
    seen = {}
    for dataset in splits.values():
        for sample in dataset:
            seen[sample.__key__] = sample.caption
            colour = np.array(example.COLOURS[sample.caption.split()[1]]) / 255
            share = (abs(sample.image - colour[:, None, None].astype(np.float32)) < 1e-3).all(axis=0).mean()
            assert 0.02 < share < 0.4, sample.caption
    assert sorted(seen) == [f"{number:06d}" for number in range(31)]
    assert len(set(seen.values())) > 8


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, load_example: Callable[[str], ModuleType]) -> None:
    example = load_example("prepare_images")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        example.write_shards(tmp_path / name, 3, 1, seed)
    a, b, c = ((tmp_path / name / "shard_000.tar").read_bytes() for name in "abc")
    assert a == b != c
