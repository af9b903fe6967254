"""validate() against the output of KempnerForge's script, and check_contents() on faulty data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.cli import main
from fastpack.errors import JobError
from fastpack.tokens.flat.validate_shards import check_contents, validate

GOLDEN = Path(__file__).parents[2] / "golden" / "kempnerforge"
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "prepare_data.json").read_text())
# How the arrays behind the golden output were made, which lists their files' sizes only.
ARRAYS = {
    "npy_u16": {f"s{k}.npy": ("uint16", 1000 + k) for k in range(3)},
    "npy_i64_warns": {"a.npy": ("int64", 10)},
    "npy_first_dtype_only": {"a.npy": ("uint32", 10), "b.npy": ("int64", 10)},
}
METADATA = """\
tokenized_info: {dtype: %s, file_prefix: p, tokenizer: t5-base, vocab_size: 32100}
"""


def prepared(case: str, folder: Path) -> Path:
    if CASES[case]["files"] is None:
        return folder / "missing"
    for name, (dtype, length) in ARRAYS.get(case, {}).items():
        np.save(folder / name, np.zeros(length, dtype))
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == CASES[case]["files"]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_output_matches_the_script(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, expected = prepared(case, tmp_path), CASES[case]
    stdout, stderr = (expected[name].replace("<DIR>", str(folder)) for name in ("stdout", "stderr"))
    assert validate(folder) == (stdout, stderr, expected["rc"])
    for command in ("validate", "prepare_data"):
        assert main([command, str(folder)]) == expected["rc"]
        assert capsys.readouterr() == (stdout, stderr)


@pytest.mark.parametrize(
    ("dtype", "n_tokens", "verdict"),
    [("uint16", 2001, True), ("uint32", 1000, True), (None, 1000, True), ("int32", 1000, False)],
)
def test_bin_shards_have_the_dtype_of_the_metadata(
    tmp_path: Path, dtype: str | None, n_tokens: int, verdict: bool
) -> None:
    for name in ("b.bin", "a.bin"):
        (tmp_path / name).write_bytes(bytes(2001))
    np.save(tmp_path / "hidden.npy", np.zeros(5))
    if dtype is not None:
        (tmp_path / "metadata.yaml").write_text(METADATA % dtype)
    known = dtype is not None
    lines = ["", "=" * 60, f"  {tmp_path}", "=" * 60, "  Shards:     2 .bin files", "  Total size: 0.0 GB"]
    lines += [f"  Tokens:     {n_tokens:,}", f"  Dtype:      {dtype or 'uint32'}"]
    lines += ["  Tokenizer:  t5-base", "  Vocab size: 32,100"] if known else []
    if verdict:
        lines += ["", "  Compatible with KempnerForge MemoryMappedDataset.", "", "  Train with:"]
        lines += [f"    --data.dataset_path={tmp_path}", "    --data.file_pattern='*.bin'"]
        lines += ["    --model.vocab_size=32100"] if known else []
    else:
        lines += ["", f"  WARNING: dtype {dtype} — expected uint16 or uint32"]
    assert validate(str(tmp_path)) == ("\n".join(lines) + "\n\n", "", 0)


@pytest.mark.parametrize(
    ("text", "error"),
    [("tokenized_info: null", AttributeError), ("tokenized_info: {dtype: smell}", TypeError), ("{", ValueError)],
)
def test_invalid_metadata_raises_as_the_script(
    tmp_path: Path, text: str, error: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(8))
    (tmp_path / "metadata.yaml").write_text(text)
    with pytest.raises(error):
        validate(tmp_path)
    assert main(["validate", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "metadata.yaml" in printed.err
    assert "internal error" not in printed.err


def test_sound_shards_have_no_findings(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = np.arange(1, 1001)
    for name, dtype in (("a", "uint16"), ("b", ">u4"), ("c", "int64")):
        np.save(tmp_path / f"{name}.npy", tokens.astype(dtype))
    np.save(tmp_path / "d.npy", np.empty(0, np.uint16))
    found = check_contents(tmp_path, vocab_size=1001, eos_token_id=7, seq_len=101)
    assert found == {
        "dtypes": [">u4", "int64", "uint16"],
        "tokens": 3000,
        "zero_tail_tokens": 0,
        "smallest_id": 0,
        "largest_id": 1000,
        "vocab_size": 1001,
        "eos_tokens": 3,
        "samples": 27,
        "samples_without_zero_tails": 27,
        "findings": [],
    }
    assert main(["validate", "--deep", str(tmp_path)]) == 0
    assert "largest id                  1,000\n" in capsys.readouterr().out


def test_every_problem_is_a_finding(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = np.random.default_rng(0).integers(300, 32000, 6000).astype(np.uint16)
    tokens[5000] = 40000
    tokens.tofile(tmp_path / "a.bin")
    with open(tmp_path / "b.bin", "wb") as file:
        file.write(tokens[:5000].tobytes())
        file.truncate(1 << 20)
    (tmp_path / "metadata.yaml").write_text(METADATA % "uint16")
    found = check_contents(tmp_path, eos_token_id=2, seq_len=1000)
    assert [(Path(one.file).name, one.offset) for one in found["findings"]] == [
        (tmp_path.name, None),
        ("a.bin", 10_000),
        ("b.bin", 10_000),
        (tmp_path.name, None),
    ]
    texts = [one.what for one in found["findings"]]
    assert "the metadata next to it says uint16" in texts[0]
    assert texts[1] == "token 40000 is not an id of a vocabulary of 32100"
    assert "519,288 of 524,288 tokens are zeros at the end" in texts[2]
    assert "token 2, the end of a document, does not occur" in texts[3]
    assert (found["samples"], found["samples_without_zero_tails"]) == (530, 11)
    words = ["validate", str(tmp_path), "--deep", "--eos-token-id", "2", "--seq-len", "7000", "--json"]
    assert main(words) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["code"] == 1
    assert report["tokens"] == 530_288
    assert report["deep"]["findings"][-1]["what"] == "no shard contains a sample of 7000 tokens"
    assert main(words[:3]) == 1
    assert f"FOUND: {tmp_path / 'a.bin'}: at byte 10000: token 40000" in capsys.readouterr().out


def test_negative_ids_and_odd_arrays(tmp_path: Path, backend: str) -> None:
    np.save(tmp_path / "a.npy", np.array([5, 6, -1], np.int32))
    np.save(tmp_path / "b.npy", np.array([[1.0, 2.0]]))
    found = check_contents(tmp_path)
    assert (found["smallest_id"], found["largest_id"]) == (-1, 6)
    assert [(Path(one.file).name, one.offset) for one in found["findings"]] == [
        ("a.npy", 128 + 8),
        ("b.npy", 0),  # floats are not tokens
    ]


def test_a_folder_without_shards_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"no \.bin or \.npy files"):
        check_contents(tmp_path)


ODD = {
    "datetime64[s]": np.arange(100).astype("datetime64[s]"),
    "timedelta64[s]": np.arange(100).astype("timedelta64[s]"),
    "[('a', '<i4'), ('b', '<i2')]": np.zeros(100, [("a", "<i4"), ("b", "<i2")]),
    "<U2": np.array(["ab"] * 100),
    "|S2": np.array([b"ab"] * 100),
    "|V4": np.zeros(100, "V4"),
    "complex128": np.zeros(100, complex),
}


@pytest.mark.parametrize("dtype", ODD)
def test_arrays_that_are_not_tokens_are_one_line_in_every_command(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", ODD[dtype])
    (finding,) = check_contents(tmp_path)["findings"]
    assert (finding.file, finding.what) == (
        str(tmp_path / "a.npy"),
        f"the dtype is {dtype}: tokens must be integers",
    )
    page = str(tmp_path / "report.html")
    for words in (["validate", "--deep"], ["verify"], ["info"], ["preview"], ["report", "--output", page]):
        path = tmp_path / "a.npy" if words[0] == "preview" else tmp_path
        assert main([*words, str(path)]) != 0
        out, err = capsys.readouterr()
        lines = [line for line in (out + err).splitlines() if "integers" in line]
        assert [dtype in line for line in lines] == [True]
        assert "internal error" not in err
    with pytest.raises(fastpack.FormatError, match=r"a\.npy: at byte 0: found the dtype .*, expected integers"):
        fastpack.MemoryMappedDataset(tmp_path, 10)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_floats_and_bools_are_findings_but_readable_as_in_kempnerforge(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(100, dtype))
    assert [finding.what for finding in check_contents(tmp_path)["findings"]] == [
        f"the dtype is {dtype}: tokens must be integers"
    ]
    assert fastpack.MemoryMappedDataset(tmp_path, 10)[0]["input_ids"].tolist() == [1] * 9
