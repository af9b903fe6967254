"""`info` of a manifest, which does not read the shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.cli import main
from fastpack.errors import FormatError


def test_the_contents_of_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (0, 100, 60):
        np.save(tmp_path / f"{number}.npy", np.arange(number, dtype=np.uint16))
    path = fastpack.write_manifest(tmp_path, eos_token_id=50).path
    folder = fastpack.inspect(tmp_path, seq_lens=[9])
    for shard in tmp_path.glob("*.npy"):
        shard.unlink()
    found = fastpack.inspect(path, seq_lens=[9])
    assert (found["kind"], found["documents"], found["checksums"], found["times_count"]) == ("manifest", 2, False, True)
    for name in ("bytes", "files", "dtypes", "tokens", "file_tokens", "samples_at"):
        assert found[name] == folder[name], name
    assert main(["info", path]) == 0
    assert "times count            yes\n" in capsys.readouterr().out


def test_doubtful_values_are_warnings(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(np.arange(1, 5001, dtype=np.uint16).tobytes() + bytes(4096))
    assert len(fastpack.inspect(fastpack.write_manifest(tmp_path).path)["warnings"]) == 2


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "manifest.fpm").write_bytes(b"x" * 1000)
    with pytest.raises(FormatError, match="a manifest of shards"):
        fastpack.inspect(tmp_path / "manifest.fpm")
