"""datatrove's readers on our files, and our reader on those of its writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from foreign_documents import BOTH, NARROW, Documents, OurFile, read

pytest.importorskip("datatrove")

from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger, get_data_reader, load_doc_ends
from datatrove.pipeline.tokens.tokenizer import TokenizedFile

import fastpack
from fastpack.tokens.mask_bits import MaskBits


@pytest.fixture
def ours(write: Callable[[str, str], OurFile]) -> OurFile:
    return write("datatrove", "00000_unshuffled.ds")


def write_theirs(path: Path, documents: Documents, size: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    file = TokenizedFile(
        str(path.parent), path.name, save_final_metadata=True, token_size=size, tokenizer_name_or_path="gpt2"
    )
    for document in documents:
        file.write(document, None)
    file.close()
    return path


def test_its_merger_reads_our_documents(ours: OurFile, tmp_path: Path) -> None:
    with Path(f"{ours.path}.index").open("rb") as index, ours.path.open("rb") as tokens:
        ends = load_doc_ends(index)
        found = [np.frombuffer(data, ours.dtype).tolist() for data in get_data_reader(tokens, ends, ours.token_size)]
    assert found == ours.documents
    DocumentTokenizerMerger(str(ours.path.parent), str(tmp_path / "out"), "all", shuffle=False, progress=False).run()
    (merged,) = (tmp_path / "out").glob("*.ds")
    assert merged.read_bytes() == ours.path.read_bytes()
    assert Path(f"{merged}.index").read_bytes() == Path(f"{ours.path}.index").read_bytes()
    assert read(merged) == ours.documents


@pytest.mark.parametrize("length", [7, 64, 700])
def test_its_dataset_reads_our_tokens_and_positions(ours: OurFile, length: int) -> None:
    pytest.importorskip("torch")
    from datatrove.utils.dataset import DatatroveFolderDataset

    dataset = DatatroveFolderDataset(
        str(ours.path.parent), length, "*.ds", token_size=ours.token_size, return_positions=True, shuffle=False
    )
    positions = [position for document in ours.documents for position in range(len(document))]
    for i in range(len(dataset)):
        window = slice(i * (length + 1), (i + 1) * (length + 1))
        assert dataset[i]["input_ids"].tolist() == ours.flat[window]
        first = positions[window.start]  # positions of a window begin with 0
        n_rest = next((k for k, position in enumerate(positions[window]) if position == 0), length + 1)
        expected = [position - first * (k < n_rest) for k, position in enumerate(positions[window])]
        assert dataset[i]["positions"].tolist() == expected
    assert len(dataset) == len(ours.flat) // (length + 1)


@pytest.mark.parametrize(("documents", "size"), BOTH)
def test_we_read_the_files_of_its_writer(tmp_path: Path, documents: Documents, size: int) -> None:
    with_empty = [[], *documents, [], [5]]
    assert read(write_theirs(tmp_path / "00000_unshuffled.ds", with_empty, size)) == with_empty


@pytest.mark.parametrize("max_tokens", [10**9, 1000])
def test_we_read_the_files_of_its_merger(tmp_path: Path, max_tokens: int) -> None:
    for rank in range(2):
        write_theirs(tmp_path / "in" / f"{rank:05}_unshuffled.ds", NARROW[rank::2], 2)
    DocumentTokenizerMerger(
        str(tmp_path / "in"), str(tmp_path / "out"), "all", max_tokens_per_file=max_tokens, seed=0, progress=False
    ).run()
    files = sorted((tmp_path / "out").glob("*.ds"))
    assert (len(files) > 1) == (max_tokens == 1000)
    assert sorted(document for file in files for document in read(file)) == sorted(NARROW)


@pytest.mark.parametrize(("documents", "size"), BOTH)
def test_we_read_the_loss_masks_of_its_writer(tmp_path: Path, documents: Documents, size: int) -> None:
    """Its writer is given a value per token, 1 if it counts."""
    rng = np.random.default_rng(0)
    masks = [rng.random(len(document)) < 0.5 for document in documents]
    path = tmp_path / "in" / "00000_unshuffled.ds"
    path.parent.mkdir()
    file = TokenizedFile(
        str(path.parent), path.name, save_loss_metadata=True, save_final_metadata=True, token_size=size
    )
    for document, mask in zip(documents, masks, strict=True):
        file.write(document, mask)
    file.close()
    packed = fastpack.convert(path, tmp_path / "a.pbin").output
    with fastpack.PackedFile(packed) as ours:
        np.testing.assert_array_equal(ours.loss_mask, np.concatenate(masks))


def test_its_merger_keeps_our_loss_masks(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    masks = {tuple(document): rng.random(len(document)) < 0.5 for document in NARROW}
    for rank in range(2):
        with fastpack.PackedWriter(tmp_path / f"{rank}.pbin", 2) as writer:
            writer.append_many(np.concatenate(NARROW[rank::2]), [*map(len, NARROW[rank::2])])
            writer.mask = MaskBits(np.concatenate([masks[tuple(document)] for document in NARROW[rank::2]]))
        fastpack.convert(writer.path, tmp_path / "in" / f"{rank:05}_unshuffled.ds")
    DocumentTokenizerMerger(
        str(tmp_path / "in"), str(tmp_path / "out"), "all", seed=0, progress=False, save_loss_metadata=True
    ).run()
    (merged,) = (tmp_path / "out").glob("*.ds")
    assert not Path(f"{merged}.mask").exists()
    with fastpack.PackedFile(fastpack.convert(merged, tmp_path / "back.pbin").output) as file:
        found = np.concatenate([masks[tuple(file[i].tolist())] for i in range(len(file))])
        np.testing.assert_array_equal(file.loss_mask, found)
