"""Compressed lines: the same lines for every block size, and errors for damaged files."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fastpack.documents import compressed
from fastpack.documents.compressed import is_compressed, read_lines
from fastpack.errors import FormatError, MissingExtra

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACK = {".gz": gzip.compress, ".zst": zstd.compress}
KINDS = sorted(PACK)


def write(folder: Path, kind: str, text: bytes, *more: bytes) -> Path:
    path = folder / f"x.jsonl{kind}"
    path.write_bytes(b"".join(PACK[kind](part) for part in (text, *more)))
    return path


@pytest.mark.parametrize("kind", KINDS)
@given(
    lines=st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), min_size=1),
    end=st.booleans(),
    n_bytes=st.integers(1, 100),
    cut=st.integers(0, 100),
)
def test_blocks_are_complete_lines_and_concatenate_to_the_text(
    kind: str, lines: list[bytes], end: bool, n_bytes: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = b"\n".join(lines) + b"\n" * end
    path = write(tmp_path_factory.mktemp("x"), kind, text[:cut], text[cut:])  # two members, one behind the other
    blocks = list(read_lines(path, n_bytes))
    assert b"".join(block for block, _ in blocks) == text
    assert all(block.endswith(b"\n") for block, _ in blocks[:-1])
    assert all(block for block, _ in blocks)
    done = [position for _, position in blocks]
    assert done == sorted(done)
    if blocks:
        assert done[-1] <= path.stat().st_size


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_longer_than_a_block_makes_a_longer_block(kind: str, tmp_path: Path) -> None:
    text = b"a\n" + b"b" * 100_000 + b"\nc"
    blocks = [block for block, _ in read_lines(write(tmp_path, kind, text), 1000)]
    assert b"".join(blocks) == text
    assert max(map(len, blocks)) >= 100_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [3, 20, -1])
def test_a_truncated_file_is_an_error(kind: str, keep: int, tmp_path: Path) -> None:
    path = write(tmp_path, kind, bytes(range(256)).replace(b"\n", b"") * 50 + b"\n")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FormatError) as caught:
        list(read_lines(path, 100))
    assert caught.value.path == str(path)
    assert 0 <= caught.value.offset <= path.stat().st_size


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_an_error(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind, b"".join(b"%d\n" % (i * i) for i in range(5000)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"damaged data|end of the file"):
        list(read_lines(path, 1 << 16))


@pytest.mark.parametrize(("kind", "content"), [(".gz", b""), (".gz", b"{}\n"), (".zst", b"\x1f\x8b\x08\x00")])
def test_a_wrong_suffix_is_an_error(kind: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"x.jsonl{kind}"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"at byte 0: found .*, expected .* as \.(gz|zst) files begin"):
        list(read_lines(path, 100))


def test_a_bomb_without_a_newline_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(FormatError, match="a line of more than"):
        list(read_lines(write(tmp_path, ".gz", bytes(3 << 20)), 1 << 16))


def test_zstd_missing_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, ".zst", b"{}\n")
    monkeypatch.setitem(sys.modules, zstd.__name__, None)
    monkeypatch.setitem(sys.modules, zstd.__name__.partition(".")[0], None)
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[zstd\]"):
        list(read_lines(path, 100))


def test_names() -> None:
    assert is_compressed("a.jsonl.gz")
    assert is_compressed(Path("a.zst"))
    assert not is_compressed("a.jsonl")
