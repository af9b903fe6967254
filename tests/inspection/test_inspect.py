"""inspect() on golden files and on unusual files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.analysis.document_lengths import LengthTable
from fastpack.analysis.options import InspectOptions
from fastpack.cli import main
from fastpack.inspection.inspect import measure

GOLDEN = Path(__file__).parents[1] / "golden"


def test_packed_file(backend: str) -> None:
    path = GOLDEN / "modalities" / "pbin" / "docs_bpe2000.pbin"
    lengths = np.load(GOLDEN / "modalities" / "expected" / "docs_bpe2000.base.npz")["lengths"]
    found = fastpack.inspect(path)
    assert found["kind"] == "pbin"
    assert (found["documents"], found["tokens"]) == (len(lengths), lengths.sum())
    assert (found["generation"], found["token_size_in_bytes"]) == (5, 2)
    assert found["document_tokens"]["max"] == lengths.max()
    assert found["warnings"] == []
    json.dumps(found)


def test_an_old_generation_is_a_warning() -> None:
    found = fastpack.inspect(GOLDEN / "modalities" / "legacy" / "v0.2.0" / "docs_escaped_bpe2000.v0.2.0.pbin")
    assert found["generation"] == 4
    assert "reads wrong documents" in found["warnings"][0]


def test_jsonl_with_and_without_its_index(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "many.jsonl"
    shutil.copy(GOLDEN / "modalities" / "jsonl" / "many.jsonl", path)
    lengths = [len(line) for line in path.read_bytes().split(b"\n")[:-1]]
    found = fastpack.inspect(path)
    assert (found["kind"], found["bytes"], found["lines"]) == ("jsonl", path.stat().st_size, len(lengths))
    assert (found["index"], found["energon_index"], found["warnings"]) == (None, None, [])
    assert found["line_bytes"]["p75"] == np.percentile(lengths, 75, method="inverted_cdf")
    without = found["line_bytes"], found["histogram"]
    fastpack.create_raw_index(path)
    found = fastpack.inspect(path)
    assert found["index"] == str(tmp_path / "many.idx")
    assert (found["line_bytes"], found["histogram"]) == without
    fastpack.write_raw_index(tmp_path / "many.idx", fastpack.read_raw_index(tmp_path / "many.idx")[1:])
    warning = f"the index has {len(lengths) - 1:,} entries, the file {len(lengths):,} lines"
    assert warning in fastpack.inspect(path)["warnings"]
    assert fastpack.inspect(tmp_path / "many.idx")["entries"] == len(lengths) - 1
    path.write_bytes(path.read_bytes() + b'{"text": "one more, without a newline"}')
    found = fastpack.inspect(path)
    assert (found["lines"], found["line_bytes"]["max"]) == (len(lengths) + 1, 39)
    assert any("many.idx is not the index of" in warning for warning in found["warnings"])


def test_json_lines_of_a_webdataset(tmp_path: Path) -> None:
    for name in ("unicode.jsonl", "unicode.jsonl.idx"):
        shutil.copy(GOLDEN / "energon" / "jsonl" / name, tmp_path)
    found = fastpack.inspect(tmp_path / "unicode.jsonl")
    assert found["energon_index"] == str(tmp_path / "unicode.jsonl.idx")
    assert fastpack.inspect(tmp_path / "unicode.jsonl.idx")["entries"] == found["energon_samples"] > 0


@pytest.mark.parametrize(("name", "files", "tokens"), [("npy_u16", 7, 495), ("bin_u32", 12, 678)])
def test_a_folder_of_shards(name: str, files: int, tokens: int) -> None:
    found = fastpack.inspect(GOLDEN / "kempnerforge" / "shards" / name)
    assert (found["kind"], found["format"], found["files"], found["tokens"]) == ("shards", name[:3], files, tokens)
    assert found["documents"] is None  # the files end with different tokens


def test_documents_of_shards_end_with_the_eos_token(tmp_path: Path, backend: str) -> None:
    rng = np.random.default_rng(3)
    shards = [rng.integers(0, 9, n).astype(np.uint16) for n in (1, 700, 65)]
    lengths: list[int] = []
    for number, tokens in enumerate(shards):
        np.save(tmp_path / f"{number}.npy", tokens)
        ends = [i + 1 for i, token in enumerate(tokens.tolist()) if token == 4]
        edges = [0, *ends, *([len(tokens)] if [0, *ends][-1] < len(tokens) else [])]
        lengths += [end - start for start, end in pairwise(edges)]
    found = fastpack.inspect(tmp_path, eos_token_id=4, seq_lens=[10, 3])
    n_eos = sum(tokens.tolist().count(4) for tokens in shards)
    assert found["documents"] == len(lengths)
    assert found["document_tokens"]["mean"] == pytest.approx(np.mean(lengths), abs=0.01)
    assert found["document_tokens"]["p90"] == np.percentile(lengths, 90, method="inverted_cdf")
    assert found["eos"] == {"id": 4, "from": "given", "tokens": n_eos, "share": round(n_eos / 766, 6)}
    assert found["largest_id"] == 8
    assert found["samples_at"][0] == {"seq_len": 3, "modalities": 765 // 3, "kempnerforge": 0 + 175 + 16}
    assert fastpack.inspect(tmp_path, eos_token_id=4, quick=True)["document_tokens"] is None


def test_the_eos_token_is_inferred_from_the_last_tokens_of_files(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.array([5, 6, 7, 1, 10 + number, 1], np.uint16))
    found = fastpack.inspect(tmp_path)
    assert found["eos"]["id"] == 1
    assert found["documents"] == 6
    (tmp_path / "0.npy").unlink()
    assert fastpack.inspect(tmp_path)["eos"] is None  # two files may have the same last token by accident


def test_sample_counts_equal_those_of_the_datasets() -> None:
    path = GOLDEN / "modalities" / "pbin" / "docs_bpe2000.pbin"
    shards = GOLDEN / "kempnerforge" / "shards" / "npy_u16"
    for length in (2, 7, 32, 100):
        (counts,) = fastpack.inspect(path, seq_lens=[length])["samples_at"]
        assert counts["modalities"] == len(fastpack.PackedMemMapDatasetContinuous(path, "x", length + 1, True))
        assert counts["modalities_megatron"] == len(fastpack.PackedMemMapDatasetMegatron(path, "x", length + 1))
        (counts,) = fastpack.inspect(shards, seq_lens=[length])["samples_at"]
        assert counts["kempnerforge"] == len(fastpack.MemoryMappedDataset(shards, length + 1))
    with pytest.raises(ValueError, match="1 or more"):
        fastpack.inspect(path, seq_lens=[0])


def test_the_unused_end_of_tatm_files_is_not_a_document(tmp_path: Path) -> None:
    tokens = np.zeros(4096, "<u2")
    tokens[:6] = [3, 1, 4, 1, 5, 1]
    tokens.tofile(tmp_path / "t_0.bin")
    info = {"dtype": "uint16", "tokenizer": "t", "vocab_size": 5, "file_prefix": "t"}
    (tmp_path / "metadata.json").write_text(json.dumps({"tokenized_info": info}))
    found = fastpack.inspect(tmp_path, eos_token_id=1)
    assert (found["dtypes"], found["tokens"], found["zero_tail"], found["documents"]) == (["uint16"], 4096, 4090, 3)
    assert (found["tokenizer"], found["vocab_size"]) == ("t", 5)
    assert "the largest id is 5, the vocabulary ends before 5" in found["warnings"]


def test_suspicious_token_ids_are_warnings() -> None:
    found = fastpack.inspect(GOLDEN / "kempnerforge" / "shards" / "bin_u16_even")
    assert any('give dtype="uint16"' in text for text in found["warnings"])
    assert any("beyond any vocabulary" in text for text in found["warnings"])


def test_a_given_dtype_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = GOLDEN / "kempnerforge" / "shards" / "bin_u16_even"
    found = fastpack.inspect(shards, dtype="uint16")
    assert (found["dtypes"], found["tokens"], found["warnings"]) == (["uint16"], 240, [])
    assert main(["info", str(shards), "--dtype", "uint16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    result = fastpack.report(shards, tmp_path / "r.html", dtype="uint16")
    assert result.numbers is not None
    assert (result.numbers["tokens"], result.numbers["warnings"]) == (240, [])
    with pytest.raises(ValueError, match="no_such"):
        fastpack.inspect(shards, dtype="no_such")
    with pytest.raises(ValueError, match=r"says its dtype itself"):
        fastpack.inspect(GOLDEN / "kempnerforge" / "shards" / "npy_u16", dtype="uint16")


def test_unreadable_inputs_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fastpack.inspect(tmp_path / "missing.pbin")
    with pytest.raises(fastpack.JobError, match=r"no \.bin or \.npy files"):
        fastpack.inspect(tmp_path)
    (tmp_path / "a.md").touch()
    with pytest.raises(fastpack.JobError, match=r"nor one of \.jsonl"):
        fastpack.inspect(tmp_path / "a.md")
    np.save(tmp_path / "f.npy", np.ones(3))
    with pytest.raises(fastpack.JobError, match="expected integers"):
        fastpack.inspect(tmp_path / "f.npy")


@pytest.mark.parametrize("name", ["a.pbin", "a.idx", "a.jsonl.idx", "a.npy"])
def test_damage_is_a_one_line_error(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_bytes(b"no such file")
    with pytest.raises(fastpack.FormatError):
        fastpack.inspect(tmp_path / name)
    assert main(["info", str(tmp_path / name)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert name in err


def test_memory_is_bounded_and_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpack.tokens.token_scan.SCANNED_BYTES", 64)
    tokens = np.arange(1000, dtype=np.uint16) % 37
    np.save(tmp_path / "a.npy", tokens)
    calls: list[tuple[int, int]] = []
    measured = measure(
        tmp_path / "a.npy",
        InspectOptions(eos_token_id=36, seq_lens=[5], count_ids=True, progress=lambda *at: calls.append(at)),
    )
    assert measured.lengths is not None
    assert measured.lengths.summary() == LengthTable.of(np.array([37] * 27 + [1])).summary()
    assert measured.ids is not None
    np.testing.assert_array_equal(measured.ids.counts, np.bincount(tokens))
    assert (len(calls), calls[-1]) == (32, (2000, 2000))


def test_text_output(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(GOLDEN / "modalities" / "pbin" / "docs_bpe2000.pbin")
    assert main(["info", path, "--seq-len", "8", "16"]) == 0
    text = capsys.readouterr().out
    assert "█" in text
    assert "samples of length" in text
    assert "the last token of" in text
    monkeypatch.setenv("TERM", "dumb")
    assert main(["info", path]) == 0
    assert capsys.readouterr().out.isascii()
    assert main(["info", "--json", path, "--seq-len", "8"]) == 0
    assert json.loads(capsys.readouterr().out) == fastpack.inspect(path, seq_lens=[8])


def test_unneeded_modules_are_not_imported() -> None:
    packed = GOLDEN / "modalities" / "pbin" / "docs_bpe2000.pbin"
    code = (
        "import sys; from fastpack.cli import main\n"
        f"for command in ('info', 'verify', 'preview'): main([command, {str(packed)!r}, '--quiet'])\n"
        "print(*sorted({'yaml', 'sqlite3', 'numpy.ma', 'torch', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, ""), done
