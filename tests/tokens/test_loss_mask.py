"""The loss mask next to a token file: its bits, its checks, and its removal with the file it describes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpack
from fastpack.tokens.loss_mask import open_loss_mask
from fastpack.tokens.mask_bits import HEADER_BYTES, MaskBits


def write(path: Path, mask: list[bool] | None, first: int = 0) -> Path:
    with fastpack.PackedWriter(path, 2, if_exists="overwrite") as writer:
        n_tokens = 20 if mask is None else len(mask)
        writer.append(np.arange(first, first + n_tokens))
        writer.mask = None if mask is None else MaskBits(mask)
    return path


@given(st.lists(st.lists(st.booleans(), max_size=40), max_size=8), st.data())
def test_masks_of_any_length_are_appended(parts: list[list[bool]], data: st.DataObject) -> None:
    bits, whole = MaskBits(), [one for part in parts for one in part]
    for part in parts:
        bits.append(np.array(part, np.bool_))
    assert (bits.n_tokens, bits.n_counted) == (len(whole), sum(whole))
    assert bits.tail(0) == np.packbits(np.array(whole, np.bool_), bitorder="little").tobytes()
    first = data.draw(st.integers(0, len(whole) // 8)) * 8
    copy = MaskBits(whole[:first])
    copy.restore(first, bits.tail(first), len(whole))
    assert (copy.tail(0), copy.n_tokens, copy.n_counted) == (bits.tail(0), bits.n_tokens, bits.n_counted)


@settings(max_examples=30)
@given(st.lists(st.booleans(), min_size=1, max_size=100), st.data())
def test_every_range_is_read(tmp_path_factory: pytest.TempPathFactory, mask: list[bool], data: st.DataObject) -> None:
    path = write(tmp_path_factory.mktemp("mask") / "a.pbin", mask)
    start = data.draw(st.integers(0, len(mask)))
    end = data.draw(st.integers(start, len(mask)))
    with fastpack.open_tokens(path) as tokens:
        found = open_loss_mask(tokens)
    assert found is not None
    assert found.read(start, end).tolist() == mask[start:end]
    assert (found.n_tokens, found.n_counted) == (len(mask), sum(mask))
    read = fastpack.PackedFile(path).loss_mask
    assert read is not None
    assert (read.dtype, read.tolist()) == (np.bool_, mask)
    assert Path(f"{path}.mask").stat().st_size == HEADER_BYTES + -(-len(mask) // 8)
    assert HEADER_BYTES <= 256


def test_a_file_without_a_mask_has_none_and_replaces_the_mask_of_an_older_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pbin", [True, False])
    assert Path(f"{path}.mask").exists()
    write(path, None)
    assert not Path(f"{path}.mask").exists()
    assert fastpack.PackedFile(path).loss_mask is None


@pytest.mark.parametrize("at", [0, 8, 16, 30, 60, 68, HEADER_BYTES, HEADER_BYTES + 2])
def test_a_damaged_mask_is_refused(tmp_path: Path, at: int) -> None:
    path = write(tmp_path / "a.pbin", [True] * 20)
    side = Path(f"{path}.mask")
    data = bytearray(side.read_bytes())
    data[at] ^= 1
    side.write_bytes(data)
    with pytest.raises(fastpack.FormatError, match=r"a\.pbin\.mask"):
        fastpack.PackedFile(path).loss_mask  # noqa: B018
    side.write_bytes(data[: at // 2])
    with pytest.raises(fastpack.FormatError, match=r"a\.pbin\.mask"):
        fastpack.PackedFile(path).loss_mask  # noqa: B018


def test_the_mask_of_another_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pbin", [True] * 20)
    other = write(tmp_path / "b.pbin", None, first=1)
    path.write_bytes(other.read_bytes())
    with pytest.raises(fastpack.FormatError, match="the loss mask of another file"):
        fastpack.PackedFile(path).loss_mask  # noqa: B018


def test_a_mask_of_other_tokens_is_not_written(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="a loss mask of 3 tokens for 2 tokens"),
        fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer,
    ):
        writer.append([1, 2])
        writer.mask = MaskBits([True] * 3)
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_folder_without_a_mask_count_completely(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.arange(10, dtype=np.uint16))
    from fastpack.tokens.flat.npy_writer import NpyWriter

    with NpyWriter(tmp_path / "2.npy", 2) as writer:
        writer.append(np.arange(3))
        writer.mask = MaskBits([False, True, False])
    with fastpack.open_tokens(tmp_path) as tokens:
        mask = open_loss_mask(tokens)
    assert mask is not None
    assert mask.read(8, 23).tolist() == [True] * 12 + [False, True, False]
    assert mask.n_counted == 21


def test_a_link_has_the_mask_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    for number in range(2):
        with fastpack.PackedWriter(tmp_path / f"{number}.pbin", 2) as writer:
            writer.append([1, 2, 3])
            writer.mask = MaskBits([False, True, False])
        (tmp_path / "links" / f"{number}.pbin").symlink_to(writer.path)
    with fastpack.PackedFile(tmp_path / "links/0.pbin") as file:
        assert file.loss_mask is not None
        assert file.loss_mask.tolist() == [False, True, False]
    fastpack.convert(tmp_path / "0.pbin", tmp_path / "x.npy")
    (tmp_path / "links" / "x.npy").symlink_to(tmp_path / "x.npy")
    (tmp_path / "links" / "y.npy").symlink_to(tmp_path / "x.npy")
    for files in ("x.npy", "*.npy"):
        dataset = fastpack.MemoryMappedDataset(tmp_path / "links", 3, file_pattern=files)
        assert dataset.batch([0], outputs=("labels",))["labels"].tolist() == [[2, -100]]
