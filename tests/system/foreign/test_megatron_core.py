"""megatron-core's reader on our files, and our reader on those of its builder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from foreign_documents import NARROW, WIDE, Documents, OurFile, read

import fastpack

pytest.importorskip("torch")
pytest.importorskip("megatron.core")

import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def build(prefix: Path, documents: Documents, dtype: type[np.integer], parts: int = 1) -> None:  # type: ignore[type-arg]
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype)
    for document in documents:
        lengths = [len(part) for part in np.array_split(document, parts)]
        builder.add_document(torch.tensor(document, dtype=torch.int64), lengths)
    builder.finalize(f"{prefix}.idx")


@pytest.mark.parametrize("mmap", [True, False])
def test_it_reads_our_documents(write: Callable[[str, str], OurFile], mmap: bool) -> None:
    ours = write("megatron", "corpus")
    prefix = str(ours.path).removesuffix(".bin")
    dataset = IndexedDataset(prefix, mmap=mmap)
    assert dataset.index.dtype == (np.uint16 if ours.token_size == 2 else np.int32)
    assert [dataset[i].tolist() for i in range(len(dataset))] == ours.documents
    assert dataset.sequence_lengths.tolist() == list(map(len, ours.documents))
    assert dataset.document_indices.tolist() == list(range(len(ours.documents) + 1))
    assert dataset.get(3, 1).tolist() == ours.documents[3][1:]


def test_its_builder_appends_our_files(write: Callable[[str, str], OurFile], tmp_path: Path) -> None:
    ours = write("megatron", "corpus")
    prefix = str(ours.path).removesuffix(".bin")
    builder = IndexedDatasetBuilder(str(tmp_path / "all.bin"), IndexedDataset(prefix).index.dtype)
    for _ in range(2):
        builder.add_index(prefix)
    builder.finalize(str(tmp_path / "all.idx"))
    assert read(tmp_path / "all") == ours.documents * 2
    merged = fastpack.merge_packed_data([ours.path] * 2, tmp_path / "merged.idx").path
    assert Path(merged).read_bytes() == (tmp_path / "all.bin").read_bytes()
    assert (tmp_path / "merged.idx").read_bytes() == (tmp_path / "all.idx").read_bytes()


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(("documents", "dtype"), [(NARROW, np.uint16), (WIDE, np.int32), (WIDE, np.int64)])
def test_we_read_the_files_of_its_builder(
    tmp_path: Path,
    documents: Documents,
    dtype: type[np.integer],
    parts: int,  # type: ignore[type-arg]
) -> None:
    with_empty = [[], *documents, [], [5]]
    build(tmp_path / "theirs", with_empty, dtype, parts)
    assert read(tmp_path / "theirs") == with_empty
    assert fastpack.verify(tmp_path / "theirs.idx").is_sound
