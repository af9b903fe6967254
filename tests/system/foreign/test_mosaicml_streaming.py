"""MosaicML Streaming's readers on our files, and our reader on those of its writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from foreign_documents import BOTH, Documents, OurFile, read

import fastpack

pytest.importorskip("streaming")

from streaming import LocalDataset, MDSWriter, StreamingDataset


@pytest.mark.parametrize("batch", [1, 7])
def test_it_reads_our_documents(write: Callable[[str, str], OurFile], batch: int) -> None:
    ours = write("mds", "folder")
    local = LocalDataset(str(ours.path))
    assert [local[i]["tokens"].tolist() for i in range(len(local))] == ours.documents
    dataset = StreamingDataset(local=str(ours.path), shuffle=False, batch_size=batch, num_canonical_nodes=1)
    assert len(dataset) == len(ours.documents)
    assert [dataset[i]["tokens"].tolist() for i in range(len(dataset))] == ours.documents


@pytest.mark.parametrize("encoding", ["ndarray", "ndarray:{}", "bytes"])
@pytest.mark.parametrize(("documents", "size"), BOTH)
def test_we_read_the_files_of_its_writer(tmp_path: Path, documents: Documents, size: int, encoding: str) -> None:
    dtype = np.dtype(f"u{size}")
    columns = {"id": "int", "tokens": encoding.format(dtype), "url": "str"}
    with MDSWriter(out=str(tmp_path / "theirs"), columns=columns, size_limit=5000) as writer:
        for number, document in enumerate(documents):
            array = np.array(document, dtype)
            tokens = array.tobytes() if encoding == "bytes" else array
            writer.write({"id": number, "tokens": tokens, "url": "x" * (number % 5)})
    assert len(list((tmp_path / "theirs").glob("*.mds"))) > 2
    assert read(tmp_path / "theirs", dtype=str(dtype) if encoding == "bytes" else None) == documents


def test_hashes_and_sizes_of_its_index_are_those_of_ours(write: Callable[[str, str], OurFile]) -> None:
    ours = write("mds", "folder")
    for shard in LocalDataset(str(ours.path)).shards:
        assert shard.validate(False) is None
        assert shard.raw_data.bytes == (ours.path / shard.raw_data.basename).stat().st_size
    assert fastpack.verify(ours.path).is_sound
