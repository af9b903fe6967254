"""TatmMemmapDataset compared with a Python implementation of tatm's behaviour."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.datasets.tatm import TatmMemmapDataset, get_dataset
from fastpack.datasets.tatm_items import torch_collate_fn
from fastpack.errors import DataWarning
from fastpack.tokens.flat.tatm_metadata import TatmDataMetadata, TokenizedInfo


def items_by_definition(files: list[list[int]], context: int, chunked: bool) -> list[list[int]]:
    items = []
    for tokens in files:
        for start in range(0, len(tokens), context if chunked else 1):
            item = tokens[start : start + context]
            items.append(item + [0] * (context - len(item)) if chunked else item)
    return items


def documents(tokens: list[int], eos: int) -> list[int]:
    return [tokens[:j].count(eos) for j in range(len(tokens))]


def write(folder: Path, files: list[list[int]], dtype: str) -> str:
    for k, tokens in enumerate(files):
        np.array(tokens, dtype).tofile(folder / f"tok_{k}.bin")
    return str(folder / "tok")


@given(
    files=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=40), min_size=1, max_size=3),
    context=st.integers(1, 12),
    chunked=st.booleans(),
    dtype=st.sampled_from(["uint16", "uint32", "int64"]),
    eos=st.integers(0, 2),
    mask=st.booleans(),
)
def test_items_match_tatm(
    backend: str,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[int]],
    context: int,
    chunked: bool,
    dtype: str,
    eos: int,
    mask: bool,
) -> None:
    prefix = write(tmp_path_factory.mktemp("tatm"), files, dtype)
    dataset = TatmMemmapDataset(
        prefix, context, dtype, chunked, eos_token=eos, token_output_format="numpy", create_doc_mask=mask
    )
    expected = items_by_definition(files, context, chunked)
    assert len(dataset) == len(expected)
    assert (dataset.num_files(), dataset.num_tokens()) == (len(files), sum(map(len, files)))
    for index, tokens in enumerate(expected):
        for item in (dataset[index], dataset[index - len(expected)]):
            assert item["token_ids"].tolist() == tokens
            assert item["token_ids"].dtype == dtype
            assert item["document_ids"].dtype == np.uint16
            ids = documents(tokens, eos)
            assert item["document_ids"].tolist() == ids
            if mask:
                n = len(ids)
                allowed = [[j <= i and ids[i] == ids[j] for j in range(n)] for i in range(n)]
                assert item["document_mask"].tolist() == allowed
            else:
                assert item["document_mask"] is None
    for index in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError, match=r"Index out of bounds\."):
            dataset[index]


def test_torch_items_are_int64_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dataset = TatmMemmapDataset(write(tmp_path, [[5, 1, 7, 8]], "uint16"), 3, create_doc_mask=True)
    item = dataset[1]
    assert item.token_ids.dtype == item.document_ids.dtype == item.document_mask.dtype == torch.int64
    assert item.token_ids.tolist() == [8, 0, 0]
    assert item.document_mask.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    (batch,) = torch.utils.data.DataLoader(dataset, batch_size=2, collate_fn=torch_collate_fn)
    assert batch["document_ids"].tolist() == [[0, 0, 1], [0, 0, 0]]


def test_splits(tmp_path: Path) -> None:
    prefix = write(tmp_path, [list(range(100, 120))], "uint16")
    with pytest.raises(ValueError, match="No current index to split"):
        TatmMemmapDataset(prefix, 2, split="train")
    dataset = TatmMemmapDataset(prefix, 2, token_output_format="numpy", val_split_size=0.25, split="validation")
    assert len(dataset) == 3
    assert dataset[0]["token_ids"].tolist() == [114, 115]
    assert dataset[-1]["token_ids"].tolist() == [118, 119]
    with pytest.raises(IndexError):
        dataset[3]
    dataset.create_split(4)
    assert len(dataset) == 4
    dataset.set_split("train")
    assert len(dataset) == 6
    assert dataset[-1]["token_ids"].tolist() == [110, 111]
    assert dataset[6]["token_ids"].tolist() == [112, 113]  # as tatm: the end of the training split is not checked
    dataset.set_split()
    assert len(dataset) == 10
    with pytest.raises(ValueError, match=r"Invalid split type val\. Valid values are \['train', 'validation'\]"):
        dataset.set_split("val")


def test_contradictory_arguments_are_refused(tmp_path: Path) -> None:
    prefix = write(tmp_path, [[1, 2]], "uint16")
    with pytest.raises(ValueError, match="Invalid token output format jax"):
        TatmMemmapDataset(prefix, 2, token_output_format="jax")
    with pytest.raises(ValueError, match="requires create_doc_ids"):
        TatmMemmapDataset(prefix, 2, create_doc_ids=False, create_doc_mask=True)
    with pytest.raises(KeyError, match="colour not found"):
        TatmMemmapDataset(prefix, 2, token_output_format="numpy")[0]["colour"]


def test_zero_tails_raise_a_warning_and_can_be_trimmed(tmp_path: Path) -> None:
    prefix = write(tmp_path, [[3, 4, 5] + [0] * 5000], "uint16")
    with pytest.warns(DataWarning, match="trim_zero_tail=True"):
        assert len(TatmMemmapDataset(prefix, 4)) == 1251
    dataset = TatmMemmapDataset(prefix, 4, token_output_format="numpy", trim_zero_tail=True)
    assert [item["token_ids"].tolist() for item in dataset] == [[3, 4, 5, 0]]
    again: Any = pickle.loads(pickle.dumps(dataset))
    assert again.batch([0, 0])["token_ids"].tolist() == [[3, 4, 5, 0]] * 2


def test_get_dataset_follows_the_metadata(tmp_path: Path) -> None:
    info = TokenizedInfo(tokenizer="t", file_prefix=write(tmp_path, [[70000, 1]], "uint32"), dtype="uint32")
    common = {"name": "n", "dataset_path": ".", "description": "", "date_downloaded": "", "download_source": ""}
    metadata = TatmDataMetadata(**common, data_content="text", tokenized_info=info)  # type: ignore[arg-type]
    metadata.to_yaml(tmp_path / "metadata.yaml")
    for source in (metadata, str(tmp_path), tmp_path / "metadata.yaml"):
        dataset = get_dataset(source, context_length=2, token_output_format="numpy")
        assert dataset[0]["token_ids"].tolist() == [70000, 1]
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    with pytest.warns(DataWarning, match="was the folder moved"):
        dataset = get_dataset(str(moved), context_length=2)
    with pytest.raises(IndexError):
        len(dataset)
    dataset = get_dataset(str(moved), context_length=2, token_output_format="numpy", relocate=True)
    assert dataset[0]["token_ids"][0] == 70000
    with pytest.raises(FileNotFoundError, match="Metadata file or directory not found"):
        get_dataset(str(tmp_path), context_length=2)
    metadata.tokenized_info = None
    with pytest.raises(NotImplementedError, match="model ready"):
        get_dataset(metadata, context_length=2)
