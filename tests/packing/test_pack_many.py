"""Pack many files, including compressed ones, and resume killed runs."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pack_sources import config_to, disk_full_after, interrupt

from fastpack import PackedFile, create_raw_index, pack_each, pack_encoded_data, plan_packing
from fastpack.errors import DataWarning, FormatError
from fastpack.io import TargetExists
from fastpack.packing import packing_pipeline, source_batches
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def make_lines(n_lines: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    texts = ["".join(rng.choices("abc é\n😀", k=int(rng.lognormvariate(4, 1)) + 1)) for _ in range(n_lines)]
    return [json.dumps({"text": text}, ensure_ascii=bool(i % 2)).encode() for i, text in enumerate(texts)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write five files of different kinds, and `whole.jsonl` with all their lines in the order of the paths."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    groups = [make_lines(n, n) for n in (150, 90, 1, 60, 200)]
    texts = [b"".join(line + b"\n" for line in lines) for lines in groups]
    (folder / "a.jsonl").write_bytes(texts[0])
    create_raw_index(folder / "a.jsonl")
    (folder / "b.jsonl").write_bytes(texts[1][:-1])  # no final newline, no index
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(texts[2]))
    (folder / "sub" / "d.jsonl.zst").write_bytes(zstd.compress(texts[3][:-1]))
    (folder / "sub" / "e.jsonl.gz").write_bytes(gzip.compress(texts[4][:5000]) + gzip.compress(texts[4][5000:]))
    (tmp_path / "whole.jsonl").write_bytes(b"".join(texts))
    create_raw_index(tmp_path / "whole.jsonl")
    return folder


@pytest.fixture
def whole(corpus: Path, tmp_path: Path) -> bytes:
    result = pack_encoded_data(config_to(tmp_path / "whole.jsonl", tmp_path / "whole.pbin"))
    assert result.documents == 501
    return (tmp_path / "whole.pbin").read_bytes()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_pipeline, "MIN_BATCH_BYTES", 2000)
    monkeypatch.setattr(packing_pipeline, "MAX_BATCH_BYTES", 3000)
    monkeypatch.setattr(source_batches, "MAX_BATCH_LINES", 7)
    monkeypatch.setattr(BytesTokenizer, "worker_bytes", 4000)


@pytest.mark.parametrize("num_cpus", [1, 3])
def test_many_sources_give_the_bytes_of_one_concatenated_source(
    num_cpus: int, corpus: Path, whole: bytes, tmp_path: Path, small_batches: None
) -> None:
    for given in (corpus, str(corpus / "**" / "*.jsonl*"), sorted(corpus.rglob("*.jsonl*"))):
        seen: list[tuple[int, int]] = []
        result = pack_encoded_data(
            config_to(given, tmp_path / "out.pbin", num_cpus=num_cpus),
            if_exists="overwrite",
            progress=lambda *args: seen.append(args),  # noqa: B023 (called before the next round)
        )
        assert (tmp_path / "out.pbin").read_bytes() == whole
        assert (result.documents, result.skipped) == (501, [])
        assert seen == sorted(seen)
        assert seen[-1][1] == sum(path.stat().st_size for path in corpus.rglob("*.jsonl*"))
        assert 0.9 < seen[-1][0] / seen[-1][1] <= 1


@pytest.mark.parametrize("num_cpus", [1, 2])
def test_per_source_output_files(num_cpus: int, corpus: Path, tmp_path: Path, small_batches: None) -> None:
    results = pack_each(config_to(corpus, tmp_path / "out", num_cpus=num_cpus))
    names = ["a.pbin", "b.pbin", "c.pbin", "sub/d.pbin", "sub/e.pbin"]
    assert [os.path.relpath(result.path, tmp_path / "out") for result in results] == names
    assert [result.documents for result in results] == [150, 90, 1, 60, 200]
    tokens = b"".join(PackedFile(result.path).data.tobytes() for result in results)
    combined = pack_encoded_data(config_to(corpus, tmp_path / "combined.pbin"))
    assert PackedFile(combined.path).data.tobytes() == tokens
    written = sorted(p.name for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert written == [name for letter in "abcde" for name in (f"{letter}.pbin", f"{letter}.pbin.fptok")]


def test_default_output_folder_is_that_of_the_sources(corpus: Path) -> None:
    results = pack_each(config_to([corpus / "a.jsonl", corpus / "sub" / "e.jsonl.gz"], None))
    assert [result.path for result in results] == [str(corpus / "a.pbin"), str(corpus / "sub" / "e.pbin")]


def test_two_sources_with_the_same_target_raise_before_writing(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n'))
    with pytest.raises(ValueError, match=r"would both be packed into .*a\.pbin"):
        pack_each(config_to(corpus, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_existence_policy_applies_to_each_file(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b.pbin").write_bytes(b"mine")
    with pytest.raises(TargetExists):
        pack_each(config_to(corpus, tmp_path / "out"))
    results = pack_each(config_to(corpus, tmp_path / "out"), file_existence_policy="skip")
    assert [result.kept_existing for result in results] == [False, True, False, False, False]
    assert (tmp_path / "out" / "b.pbin").read_bytes() == b"mine"


def test_skipped_documents_name_their_source(corpus: Path, tmp_path: Path, small_batches: None) -> None:
    bad = b'{"text": null}\n\n{"text": 3}\n'
    (corpus / "c.jsonl.gz").write_bytes(gzip.compress(make_lines(30, 1)[0] + b"\n" + bad + b'{"text": "ok"}'))
    result = pack_encoded_data(config_to(corpus, tmp_path / "out.pbin"))
    source = str(corpus / "c.jsonl.gz")
    assert [(s.get("source"), s["line"]) for s in result.skipped] == [(source, 2), (source, 3), (source, 4)]
    assert result.documents == 502
    with pytest.raises(ValueError, match=r"c\.jsonl\.gz: line 2 at byte \d+: the result is null"):
        pack_encoded_data(config_to(corpus, tmp_path / "strict.pbin"), on_faulty="error")
    assert not (tmp_path / "strict.pbin").exists()


def test_damaged_source_leaves_no_target(corpus: Path, tmp_path: Path) -> None:
    path = corpus / "sub" / "e.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"e\.jsonl\.gz: at byte \d+"):
        pack_encoded_data(config_to(corpus, tmp_path / "out.pbin"))
    assert sorted(os.listdir(tmp_path)) == ["in", "whole.idx", "whole.jsonl"]


def test_explicit_index_for_several_sources_is_an_error(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a single JSON Lines source that is not compressed"):
        pack_encoded_data(config_to(corpus, tmp_path / "out.pbin", index_path=corpus / "a.idx"))


def test_plan_predicts_the_run(corpus: Path, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    (plan,) = plan_packing(config_to([corpus / "a.jsonl", corpus / "b.jsonl"], tmp_path / "out.pbin"))
    assert sorted(os.listdir(tmp_path)) == before
    result = pack_encoded_data(config_to([corpus / "a.jsonl", corpus / "b.jsonl"], tmp_path / "out.pbin"))
    assert (plan.path, plan.lines, plan.kept_existing) == (result.path, result.documents, False)
    assert plan.token_size_in_bytes == 2
    assert plan.estimated_tokens is not None
    assert 0.99 < plan.estimated_tokens / result.tokens < 1.01  # the sample contains all documents
    with pytest.raises(TargetExists):
        plan_packing(config_to(corpus / "a.jsonl", tmp_path / "out.pbin"))
    plans = plan_packing(config_to(corpus, tmp_path / "each"), each=True)
    assert [plan.lines for plan in plans] == [150, 90, None, None, None]


def test_failed_run_is_resumed_at_its_checkpoint(
    corpus: Path, whole: bytes, tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop at every batch, each with a checkpoint: no document is tokenised twice, and the bytes are the same."""
    monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", 0)
    encoded: list[int] = []
    real = BytesTokenizer.encode_many

    def count(self: BytesTokenizer, texts: Any, eod: int | None = None) -> Any:
        encoded.append(len(texts))
        return real(self, texts, eod)

    monkeypatch.setattr(BytesTokenizer, "encode_many", count)

    config = config_to(corpus, tmp_path / "out.pbin")
    runs = 0
    while not (tmp_path / "out.pbin").exists():
        try:
            result = pack_encoded_data(config, resume=True, progress=interrupt if runs % 20 < 19 else None)
        except KeyboardInterrupt:
            runs += 1
    assert runs >= 19
    assert (tmp_path / "out.pbin").read_bytes() == whole
    assert result.documents == 501 == sum(encoded)
    assert 0 < result.resumed_documents < 501
    assert not list(tmp_path.glob(".*"))
    again = pack_encoded_data(config, resume=True)
    assert again.kept_existing


def test_documents_skipped_before_the_failure_are_still_reported(
    tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", 0)
    (tmp_path / "x.jsonl").write_bytes(b'{"text": ""}\n{"text": "a"}\n' * 40)
    config = config_to([tmp_path / "x.jsonl"], tmp_path / "x.pbin")
    with pytest.raises(OSError, match="No space left"):
        pack_encoded_data(config, resume=True, progress=disk_full_after(0.3))
    result = pack_encoded_data(config, resume=True)
    assert result.resumed_documents > 0
    assert [s["line"] for s in result.skipped] == list(range(1, 81, 2))


def test_failed_run_without_resume_leaves_no_files(
    corpus: Path, tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(OSError, match="No space"):
        pack_encoded_data(config_to(corpus, tmp_path / "out.pbin"), progress=disk_full_after(0))
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("num_cpus", [1, 2])
def test_interrupted_run_can_be_resumed(
    error: type[BaseException], num_cpus: int, corpus: Path, whole: bytes, tmp_path: Path, small_batches: None
) -> None:
    """Interrupt without resume=True, long before the first checkpoint."""
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if done > total // 2:
            raise error

    config = config_to(corpus, tmp_path / "out.pbin", num_cpus=num_cpus)
    with pytest.raises(error) as stopped:
        pack_encoded_data(config, progress=stop)
    share = 100 * calls[-1] // sum(path.stat().st_size for path in corpus.rglob("*.jsonl*"))
    assert stopped.value.__notes__ == [f"stopped at {share} %; call again with resume=True to continue"]
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".out.pbin.journal", ".out.pbin.partial"]
    result = pack_encoded_data(config, resume=True)
    assert result.resumed_documents > 0
    assert (tmp_path / "out.pbin").read_bytes() == whole
    assert not list(tmp_path.glob(".*"))


def test_resume_starts_again_when_a_source_changed(
    corpus: Path, whole: bytes, tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", 0)

    config = config_to(corpus, tmp_path / "out.pbin")
    with pytest.raises(KeyboardInterrupt):
        pack_encoded_data(config, resume=True, progress=interrupt)
    os.utime(corpus / "b.jsonl", (1, 1))
    with pytest.warns(DataWarning, match="started again"):
        result = pack_encoded_data(config, resume=True)
    assert result.resumed_documents == 0
    assert (tmp_path / "out.pbin").read_bytes() == whole


SCRIPT = """
import sys
from fastpack.packing import source_batches as lines
from fastpack.packing import packing_pipeline as run
from fastpack.packing.pack import pack_encoded_data
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
BytesTokenizer.worker_bytes = run.MIN_BATCH_BYTES = run.MAX_BATCH_BYTES = 20_000
run.CHECKPOINT_SECONDS = 0.002
print("ready", flush=True)
pack_encoded_data({
    "settings": {"src_path": [sys.argv[1]], "dst_path": sys.argv[2], "jq_pattern": ".text",
                 "num_cpus": int(sys.argv[3]), "eod_token": "<|endoftext|>"},
    "tokenizer": {"variant_key": "builtin_bytes"},
}, resume=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("num_cpus", [1, 2])
def test_random_kills_and_resumes_give_the_same_bytes(num_cpus: int, tmp_path: Path) -> None:
    source, target = tmp_path / "x.jsonl.gz", tmp_path / "x.pbin"
    source.write_bytes(gzip.compress(b"".join(line + b"\n" for line in make_lines(30_000, 5)), 1))
    pack_encoded_data(config_to(source, tmp_path / "whole.pbin"))
    rng = random.Random(7)
    kills = 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(source), str(target), str(num_cpus)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.05, 0.25) + 0.05 * kills)  # workers start slowly
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL
        assert not target.exists() or target.read_bytes() == (tmp_path / "whole.pbin").read_bytes()
        kills += 1
        assert kills < 200
        if target.exists():
            break
    assert target.read_bytes() == (tmp_path / "whole.pbin").read_bytes()
    pack_encoded_data(config_to(source, target), resume=True)
    assert kills >= 2


def test_four_faulty_documents_of_a_hundred(tmp_path: Path) -> None:
    """Modalities 0.5.0 writes at most the batches before the first faulty document, and exits with status 0."""
    lines = make_lines(100, 9)
    for number, text in ((12, b'""'), (35, b"null"), (36, b"7"), (99, b'"\\ud800"')):
        lines[number] = b'{"text": ' + text + b"}"
    (tmp_path / "x.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    command = [sys.executable, "-m", "fastpack", "pack", str(tmp_path / "x.jsonl"), "--tokenizer", "bytes", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["documents"] == 96 == len(PackedFile(tmp_path / "x.pbin"))
    assert report["skipped"] == [
        {"line": 13, "reason": "empty text"},
        {"line": 36, "reason": "the result is null (or no such key), expected a string"},
        {"line": 37, "reason": "the result is a number, expected a string"},
        {"line": 100, "reason": "lone surrogate escape"},
    ]
    for line in (13, 36, 37, 100):
        assert f"skipped line {line}: " in done.stderr
    strict = subprocess.run([*command, "--force", "--on-faulty", "error"], capture_output=True, text=True, check=False)
    assert strict.returncode == 1
    assert "line 13 at byte" in strict.stderr
    assert report["documents"] == len(PackedFile(tmp_path / "x.pbin"))  # the old file is intact
