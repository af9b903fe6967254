"""verify() on folders of token shards and on single shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastpack.inspection.verify import verify

GOLDEN = Path(__file__).parents[1] / "golden" / "kempnerforge" / "shards"
METADATA = "name: n\ntokenized_info: {dtype: %s, file_prefix: /data/tokenized, tokenizer: t5-base, vocab_size: 100}\n"


def found(path: Path, **options: Any) -> list[tuple[str, str, int | None]]:
    return [(one.severity, one.found, one.offset) for one in verify(path, **options).findings]


def tatm(folder: Path, dtype: str = "uint16", **files: bytes) -> Path:
    (folder / "metadata.yaml").write_text(METADATA % dtype)
    for name, content in files.items():
        (folder / f"{name}.bin").write_bytes(content)
    return folder


def test_shards_of_kempnerforge(backend: str) -> None:
    report = verify(GOLDEN / "bin_u32")
    assert report.findings == []
    assert report.checked == {"shards": 12, "tokens": 678, "bytes": 2712}
    ((severity, text, _),) = found(GOLDEN / "bin_u16_even")
    assert severity == "warning"
    assert 'give dtype="uint16"' in text


def test_metadata_give_the_dtype_and_the_vocabulary(tmp_path: Path) -> None:
    tokens = np.arange(1, 52, dtype=np.uint16)
    folder = tatm(tmp_path, tokenized_0=tokens.tobytes(), tokenized_1=tokens[::-1].tobytes())
    assert found(folder, eos_token_id=7) == []
    assert verify(folder).checked["tokens"] == 102
    assert found(folder, eos_token_id=60) == [("warning", "no token 60, the end of a document", None)]
    assert found(folder, vocab_size=40)[0] == ("error", "token 40", 78)
    tokens[3] = 100
    (tmp_path / "tokenized_0.bin").write_bytes(tokens.tobytes())
    assert found(folder) == [("error", "token 100", 6)]
    assert found(tmp_path / "tokenized_0.bin") == [("error", "token 100", 6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tokenized_info: {dtype: nothing}", "dtype 'nothing' is unknown"),
        ("tokenized_info: {dtype: float32}", "dtype 'float32' is not an integer dtype"),
        ("a: &a [1]\nb: *a", "aliases are refused"),
        ("- list", "expected a mapping"),
    ],
)
def test_unusable_metadata(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "a.bin").write_bytes(np.arange(4, dtype=np.uint32).tobytes())
    (tmp_path / "metadata.yaml").write_text(text)
    errors = [text for severity, text, _ in found(tmp_path) if severity == "error"]
    assert any(expected in text for text in errors)


def test_files_with_unexpected_names_and_sizes(tmp_path: Path) -> None:
    folder = tatm(tmp_path, tokenized_0=bytes([1, 0] * 10), other=bytes([1, 0] * 10 + [1]), tokenized_2=b"")
    texts = found(folder)
    assert ("error", "1 bytes after the last token", 20) in texts
    assert any(severity == "error" and "empty file" in text for severity, text, _ in texts)
    assert any("1 files that do not begin with its file_prefix" in text for _, text, _ in texts)


def test_zeros_at_the_end(tmp_path: Path) -> None:
    folder = tatm(tmp_path, tokenized_0=np.concatenate([np.ones(100), np.zeros(2001)]).astype("<u2").tobytes())
    assert found(folder) == [("warning", "2001 of 2101 tokens are zeros at the end", 200)]


def test_npy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10, dtype=np.uint16))
    assert found(tmp_path) == []
    assert found(tmp_path / "a.npy", vocab_size=5) == [("error", "token 5", 128 + 10)]
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-3])
    ((severity, text, offset),) = found(tmp_path)
    assert (severity, text, offset) == ("error", f"the end of the file after {len(whole) - 3} bytes", len(whole) - 3)
    (tmp_path / "cut.npy").write_bytes(whole + b"more")
    assert found(tmp_path) == [("warning", "4 bytes after the last token", len(whole))]
    np.save(tmp_path / "cut.npy", np.arange(10, dtype=np.int64).reshape(2, 5))
    texts = [text for severity, text, _ in found(tmp_path) if severity == "warning"]
    assert texts[0].startswith("an array that is not one-dimensional")
    assert texts[1:3] == ["the dtypes int64, uint16", "the dtype int64"]
    np.save(tmp_path / "cut.npy", np.array([1.5]))
    assert ("error", "the dtype float64", None) in found(tmp_path)
    np.save(tmp_path / "cut.npy", np.array([{}]), allow_pickle=True)
    assert [one[0] for one in found(tmp_path)] == ["error"]


def test_negative_ids(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, -100, 2], np.int32))
    errors = [one for one in found(tmp_path) if one[0] == "error"]
    assert errors == [("error", "token -100", 128 + 4)]
