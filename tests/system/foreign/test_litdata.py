"""litData's reader on our files, and our reader on those of its writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from foreign_documents import BOTH, Documents, OurFile, flat, read

pytest.importorskip("litdata")
pytest.importorskip("torch")

import torch
from litdata import StreamingDataset, TokensLoader, optimize
from litdata.streaming.writer import BinaryWriter


@pytest.mark.parametrize("block", [1, 16])
def test_it_reads_our_tokens(write: Callable[[str, str], OurFile], block: int) -> None:
    ours = write("litdata", "folder")
    dataset = StreamingDataset(str(ours.path), item_loader=TokensLoader(block_size=block), shuffle=False)
    found = [token for i in range(len(dataset)) for token in dataset[i].tolist()]
    assert found == ours.flat[: len(ours.flat) // block * block]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(("documents", "size"), BOTH)
def test_we_read_the_files_of_its_writer(tmp_path: Path, documents: Documents, size: int, kind: str) -> None:
    writer = BinaryWriter(str(tmp_path / "theirs"), chunk_bytes=2000, item_loader=TokensLoader())
    dtype = np.dtype(f"u{size}")
    for number, document in enumerate(documents):
        array = np.array(document, dtype)
        writer.add_item(number, array if kind == "numpy" else torch.tensor(document, dtype=torch.int64))
    writer.done()
    writer.merge()
    assert len(list((tmp_path / "theirs").glob("*.bin"))) > 2
    assert read(tmp_path / "theirs") == documents


def _tokens(number: int) -> Iterator[torch.Tensor]:
    yield torch.arange(number, dtype=torch.int32)


def test_we_read_the_files_of_optimize(tmp_path: Path) -> None:
    optimize(
        fn=_tokens,
        inputs=list(range(1, 30)),
        output_dir=str(tmp_path / "theirs"),
        chunk_bytes="1KB",
        item_loader=TokensLoader(),
        num_workers=1,
        start_method="fork",
    )
    found = read(tmp_path / "theirs")
    assert sorted(found) == [list(range(number)) for number in range(1, 30)]
    assert len(flat(found)) == 435
