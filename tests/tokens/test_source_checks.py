"""What is refused or warned of before tokens are read or written: guessed dtypes, other EOS tokens, old side files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

import fastpack
from fastpack.errors import DataWarning, FormatError
from fastpack.io import TargetExists


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """A raw file of uint16 tokens whose size fits uint32, which would be guessed."""
    path = tmp_path / "narrow.bin"
    np.random.default_rng(0).integers(0, 50_000, 5000).astype("<u2").tofile(path)
    return path


def packed(path: Path, lengths: list[int]) -> Path:
    with fastpack.PackedWriter(path, 2) as writer:
        writer.append_many(np.arange(1, sum(lengths) + 1), lengths)
    return path


USES: list[Callable[[Path, Path], object]] = [
    lambda source, output: fastpack.plan(source, output, seq_length=8, eos_token_id=0),
    lambda source, _: fastpack.GPTDataset.build(source, 8, 1, (3, 0, 0), "1,0,0", eod_token_id=0),
    lambda source, output: fastpack.convert(source, output.with_suffix(".ds"), eos_token_id=0),
]


@pytest.mark.parametrize("use", USES)
def test_a_guessed_dtype_is_not_trusted(use: Callable[[Path, Path], object], narrow: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="dtype uint32 is guessed from its size"):
        use(narrow, tmp_path / "out.plan")


def test_a_given_dtype_is_used(narrow: Path, tmp_path: Path) -> None:
    result = fastpack.plan(narrow, tmp_path / "a.plan", seq_length=8, eos_token_id=0, dtype="uint16")
    assert result.n_tokens == 5000


def test_a_raw_file_is_not_cut(tmp_path: Path) -> None:
    np.array([5, 0, 6, 0, 7], "<u2").tofile(tmp_path / "odd.bin")
    with pytest.raises(FormatError, match="10 bytes, expected tokens of uint32, 4 bytes each"):
        fastpack.open_tokens(tmp_path / "odd.bin", dtype="uint32")


def test_an_array_of_numpy_is_not_raw_tokens(tmp_path: Path) -> None:
    with open(tmp_path / "a.bin", "wb") as file:
        np.save(file, np.arange(5000, dtype=np.uint16))
    for dtype in (None, "uint16"):
        with pytest.raises(FormatError, match=r"a\.bin: at byte 0: found .*NumPy's header.*rename it to \.npy"):
            fastpack.open_tokens(tmp_path / "a.bin", dtype=dtype)


@pytest.mark.parametrize("format", ["bin", "llmc", "nanogpt"])
@pytest.mark.parametrize("if_exists", ["error", "overwrite"])
def test_an_old_index_of_megatron_is_not_left_to_a_new_file(tmp_path: Path, format: str, if_exists: str) -> None:
    fastpack.convert(packed(tmp_path / "a.pbin", [3, 2, 4]), tmp_path / "y", format="megatron")
    (tmp_path / "y.bin").unlink()
    with pytest.raises(TargetExists, match=r"y\.idx is a Megatron index"):
        fastpack.convert(packed(tmp_path / "b.pbin", [5, 4]), tmp_path / "y.bin", format=format, if_exists=if_exists)
    assert not (tmp_path / "y.bin").exists()


def test_another_eos_token_than_the_recorded_one_is_warned_of(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "hello"}\n{"text": "there"}\n')
    cli("pack", tmp_path / "a.jsonl", "--tokenizer", "bytes", "-o", tmp_path / "a.npy")
    text = "eos_token_id is 3, but the tokenizer bytes ended documents in 256"
    with pytest.warns(DataWarning, match=text):
        fastpack.convert(tmp_path / "a.npy", tmp_path / "a.ds", eos_token_id=3)
    with pytest.warns(DataWarning, match=text):
        fastpack.plan(tmp_path / "a.npy", tmp_path / "a.plan", seq_length=8, eos_token_id=3)
    with pytest.warns(DataWarning, match=text):
        fastpack.merge_packed_data([tmp_path / "a.npy"], tmp_path / "b.pbin", eos_token_id=3)
    fastpack.convert(tmp_path / "a.npy", tmp_path / "b.ds", eos_token_id=256)


@pytest.mark.parametrize(("format", "suffix"), [("pbin", ".pbin"), ("npy", ".npy"), ("bin", ".bin"), ("llmc", ".bin")])
def test_shards_have_the_suffix_of_their_format(tmp_path: Path, format: str, suffix: str) -> None:
    source = packed(tmp_path / "a.pbin", [3, 2, 4])
    result = fastpack.convert(source, tmp_path / "out" / "corpus", format=format, shard_tokens=5)
    assert len(result.outputs) == 2
    assert {Path(path).suffix for path in result.outputs} == {suffix}
    with pytest.raises(TargetExists, match=r"exists\. Pass if_exists='overwrite'"):
        fastpack.convert(source, tmp_path / "out" / "corpus", format=format, shard_tokens=5)


def test_an_array_of_floats_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(FormatError, match="an array of float64, expected integers"):
        fastpack.convert(tmp_path / "a.npy", tmp_path / "a.ds", eos_token_id=0)
