"""`PackedFile` as a replacement of Modalities' EmbeddedStreamData."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from packed_files import write_packed

import fastpack


def test_attributes_of_embedded_stream_data(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin", [[1, 2, 3], [4, 5]])
    file = fastpack.PackedFile(path, True)
    assert (file.data_len, file.token_size_in_bytes) == (10, 2)
    assert file.index_base == [(0, 6), (6, 4)]
    assert {type(number) for row in file.index_base for number in row} == {int}
    header = (file.DATA_SECTION_LENGTH_IN_BYTES, file.TOKEN_SIZE_DESCRIPTOR_LENGTH_IN_BYTES, file.HEADER_SIZE_IN_BYTES)
    assert header == (8, 4, 12)
    raw = path.read_bytes()
    assert int.from_bytes(raw[: fastpack.PackedFile.DATA_SECTION_LENGTH_IN_BYTES], "little") == file.data_len
    assert raw[file.HEADER_SIZE_IN_BYTES :][: file.data_len] == file.data.tobytes()


def test_without_an_index(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin", [[1, 2, 3], [4, 5]])
    for file in (
        fastpack.PackedFile(path, load_index=False),
        pickle.loads(pickle.dumps(fastpack.PackedFile(path, load_index=False))),
    ):
        assert file.data.tolist() == [1, 2, 3, 4, 5]
        with pytest.raises(ValueError, match="Index was not loaded"):
            _ = file.index_base
