"""`pack_encoded_data`: the peer's bytes, and no document lost that it would lose."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import example, given, settings

from fastpack.build.packing import lines as lines_module
from fastpack.build.packing import pack as pack_module
from fastpack.build.packing import run as run_module
from fastpack.build.packing.pack import PackResult, pack_encoded_data
from fastpack.build.tokenizing.hf_tokenizer import HFTokenizer
from fastpack.build.tokenizing.interface import BytesTokenizer
from fastpack.errors import FormatError, JobError
from fastpack.formats.jsonl import read_raw_index, repair_raw_index
from fastpack.formats.pbin import PackedFile

CONFIGS = ("docs_bpe2000", "docs_char250", "docs_crlf_bpe2000", "one_bpe2000")
BYTES = {"component_key": "tokenizer", "variant_key": "builtin_bytes", "config": {}}


def line(text: Any) -> bytes:
    return json.dumps({"text": text}, ensure_ascii=False).encode()


def write_source(folder: Path, lines: Sequence[bytes]) -> Path:
    """A JSONL file of these lines, faulty ones too, and its index."""
    source = folder / "src.jsonl"
    source.write_bytes(b"".join(part + b"\n" for part in lines))
    rows, offset = [], 0
    for part in lines:
        rows.append((offset, len(part)))
        offset += len(part) + 1
    source.with_suffix(".idx").write_bytes(pickle.dumps(rows, protocol=4))
    return source


def config_of(source: Path, tokenizer: dict[str, Any] = BYTES, **changes: Any) -> dict[str, Any]:
    chosen = {
        "src_path": source,
        "dst_path": source.with_suffix(".pbin"),
        "jq_pattern": ".text",
        "num_cpus": 1,
        "eod_token": "<|endoftext|>",
        **changes,
    }
    return {"settings": chosen, "tokenizer": tokenizer}


def documents(path: str | Path) -> list[list[int]]:
    with PackedFile(path) as file:
        return [file[i].tolist() for i in range(len(file))]


def as_tokens(text: str) -> list[int]:
    return [*text.encode(), 256]


def pack_lines(folder: Path, lines: Sequence[bytes], **changes: Any) -> tuple[PackResult, list[list[int]]]:
    result = pack_encoded_data(config_of(write_source(folder, lines), **changes), file_existence_policy="override")
    return result, documents(result.path)


@pytest.fixture
def peer(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like the one in which Modalities wrote the golden files, without what it wrote."""
    shutil.copytree(golden / "modalities", tmp_path / "peer", ignore=shutil.ignore_patterns("expected", "legacy"))
    monkeypatch.chdir(tmp_path / "peer")
    Path("pbin").rename("golden_pbin")
    return tmp_path / "peer"


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, hence worker processes, for small files."""
    monkeypatch.setattr(run_module, "MIN_BATCH_BYTES", 4096)
    monkeypatch.setattr(run_module, "MAX_BATCH_BYTES", 8192)
    monkeypatch.setattr(BytesTokenizer, "worker_bytes", 4096)
    monkeypatch.setattr(HFTokenizer, "worker_bytes", 4096)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_peers_configuration_gives_the_peers_bytes(name: str, peer: Path, backend: str) -> None:
    result = pack_encoded_data(f"configs/{name}.yaml")
    assert result.skipped == []
    assert Path(f"pbin/{name}.pbin").read_bytes() == Path(f"golden_pbin/{name}.pbin").read_bytes()
    assert result.documents == len(documents(result.path))
    assert result.tokens == sum(map(len, documents(result.path)))


@pytest.mark.parametrize("num_cpus", [2, 3])
@pytest.mark.parametrize("name", ["docs_bpe2000", "docs_char250"])
def test_the_bytes_do_not_depend_on_the_number_of_processes(
    name: str, num_cpus: int, peer: Path, small_batches: None
) -> None:
    config = yaml.safe_load(Path(f"configs/{name}.yaml").read_text())
    config["settings"]["num_cpus"] = num_cpus
    seen: list[tuple[int, int]] = []
    result = pack_encoded_data(config, progress=lambda done, total: seen.append((done, total)))
    assert Path(result.path).read_bytes() == Path(f"golden_pbin/{name}.pbin").read_bytes()
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_the_bytes_do_not_depend_on_the_batches(peer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = yaml.safe_load(Path("configs/docs_bpe2000.yaml").read_text())
    config["settings"]["num_cpus"] = 1
    expected = Path("golden_pbin/docs_bpe2000.pbin").read_bytes()
    for n_bytes, n_lines in ((1, 16_384), (3000, 2), (1 << 20, 7)):
        monkeypatch.setattr(run_module, "MIN_BATCH_BYTES", n_bytes)
        monkeypatch.setattr(run_module, "MAX_BATCH_BYTES", n_bytes)
        monkeypatch.setattr(lines_module, "MAX_BATCH_LINES", n_lines)
        assert Path(pack_encoded_data(config, file_existence_policy="override").path).read_bytes() == expected


FAULTY = {
    "empty text": (line(""), "empty text"),
    "null": (line(None), "the result is null (or no such key), expected a string"),
    "missing key": (b"{}", "the result is null (or no such key), expected a string"),
    "number": (line(5), "the result is a number, expected a string"),
    "list": (line(["x"]), "the result is an array, expected a string"),
    "lone surrogate": (b'{"text": "\\ud800"}', "lone surrogate escape"),
    "invalid UTF-8": (b'{"text": "\xff"}', "not UTF-8: byte 0xff at byte 10 of the line"),
    "surrogate bytes": (b'{"text": "\xed\xa0\x80"}', "not UTF-8: byte 0xed at byte 10 of the line"),
    "no object": (b"[1]", "no 'text' in an array"),
    "blank": (b"", "jq gives no result"),
}


@pytest.mark.parametrize("kind", FAULTY)
@pytest.mark.parametrize("place", [0, 35, 99])
def test_a_faulty_document_costs_no_other(kind: str, place: int, tmp_path: Path) -> None:
    bad, reason = FAULTY[kind]
    lines = [line(f"document {i}") for i in range(100)]
    lines[place] = bad
    result, found = pack_lines(tmp_path, lines)
    assert result.skipped == [{"line": place, "reason": reason}]
    assert found == [as_tokens(f"document {i}") for i in range(100) if i != place]
    assert (result.documents, result.tokens) == (99, sum(map(len, found)))


def test_a_filter_of_jq_may_leave_documents_out(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"d{i}", "n": i}).encode() for i in range(10)]
    result, found = pack_lines(tmp_path, lines, jq_pattern="select(.n % 2 == 0) | .text")
    assert found == [as_tokens(f"d{i}") for i in range(0, 10, 2)]
    assert result.skipped == [{"line": i, "reason": "jq gives no result"} for i in range(1, 10, 2)]


@pytest.mark.parametrize("num_cpus", [1, 2])
def test_on_faulty_error_names_the_first_place_and_writes_nothing(
    num_cpus: int, tmp_path: Path, small_batches: None
) -> None:
    lines = [line("x" * 600) for _ in range(60)]
    lines[40] = line("")
    lines[50] = line(None)
    source = write_source(tmp_path, lines)
    offset = sum(len(part) + 1 for part in lines[:40])
    with pytest.raises(ValueError, match=re.escape(f"{source}: line 40 at byte {offset}: empty text")):
        pack_encoded_data(config_of(source, num_cpus=num_cpus), on_faulty="error")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["src.idx", "src.jsonl"]


def test_an_unknown_rule_for_faulty_documents(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose skip or error"):
        pack_encoded_data(config_of(tmp_path / "x"), on_faulty="ignore")  # type: ignore[arg-type]


def test_empty_input_gives_the_17_byte_file(tmp_path: Path) -> None:
    result, found = pack_lines(tmp_path, [])
    assert (result.documents, result.tokens, found) == (0, 0, [])
    expected = bytes(8) + (2).to_bytes(4, "little") + pickle.dumps([], protocol=4)
    assert Path(result.path).read_bytes() == expected
    assert len(expected) == 17
    result, _ = pack_lines(tmp_path, [line(""), b"{}"])
    assert Path(result.path).read_bytes() == expected
    assert [s["line"] for s in result.skipped] == [0, 1]


texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
lines_good_or_bad = st.one_of(texts.map(line), st.sampled_from([bad for bad, _ in FAULTY.values()]))


@settings(max_examples=60)
@given(st.lists(lines_good_or_bad, max_size=30), st.integers(1, 300))
@example([line("a"), b"", line("b")], 1)
def test_skipping_faulty_documents_equals_packing_the_good_ones_alone(
    tmp_path: Path, lines: list[bytes], batch: int
) -> None:
    bad = {part for part, _ in FAULTY.values()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "MIN_BATCH_BYTES", batch)
        patch.setattr(run_module, "MAX_BATCH_BYTES", batch)
        mixed, _ = pack_lines(tmp_path, lines)
        mixed_bytes = Path(mixed.path).read_bytes()
    good, found = pack_lines(tmp_path, [part for part in lines if part not in bad])
    assert mixed_bytes == Path(good.path).read_bytes()
    assert [s["line"] for s in mixed.skipped] == [i for i, part in enumerate(lines) if part in bad]
    assert found == [as_tokens(json.loads(part)["text"]) for part in lines if part not in bad]


def test_existence_policies(tmp_path: Path) -> None:
    source = write_source(tmp_path, [line("new")])
    target = tmp_path / "deep" / "er" / "out.pbin"
    config = config_of(source, dst_path=target)
    assert pack_encoded_data(config) == PackResult(str(target), 1, 4)
    target.write_bytes(b"old")
    with pytest.raises(ValueError, match=r"File already exists\. Delete it or specify different output folder"):
        pack_encoded_data(config)
    with pytest.raises(FileExistsError):
        pack_encoded_data(config)
    assert pack_encoded_data(config, file_existence_policy="skip") == PackResult(str(target), 0, 0, kept_existing=True)
    assert target.read_bytes() == b"old"
    pack_encoded_data(config, file_existence_policy="override")
    assert documents(target) == [as_tokens("new")]


def test_an_index_that_does_not_fit_the_source(tmp_path: Path) -> None:
    source = write_source(tmp_path, [line("a"), line("b")])
    source.write_bytes(source.read_bytes()[:-3])
    with pytest.raises(FormatError, match="index entry 1 = "):
        pack_encoded_data(config_of(source))
    assert not source.with_suffix(".pbin").exists()


def tokenizer_of(folder: Path, vocabulary: Sequence[str], added: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """A tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=vocabulary[0]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(list(added))
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<eod>"})
    )
    config = {"pretrained_model_name_or_path": str(folder), **options}
    return {"component_key": "tokenizer", "variant_key": "pretrained_hf_tokenizer", "config": config}


@pytest.mark.parametrize(("vocab_size", "token_size"), [(200, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_token_sizes(vocab_size: int, token_size: int, tmp_path: Path) -> None:
    words = ["<unk>", "<eod>", *(f"w{i}" for i in range(2, vocab_size))]
    tokenizer = tokenizer_of(tmp_path, words)
    source = write_source(tmp_path, [line(f"w2 w{vocab_size - 1} nothing")])
    result = pack_encoded_data(config_of(source, tokenizer, eod_token="<eod>"))
    with PackedFile(result.path) as file:
        assert file.token_size_in_bytes == token_size
        assert file[0].tolist() == [2, vocab_size - 1, 0, 1]


def test_the_end_of_document_rule(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a", "b"], ["<eod>"])
    lines = [line(text) for text in ("a b", "a <eod>", "a <eod> <eod>", "<eod>", "<eod> a")]
    result = pack_encoded_data(config_of(write_source(tmp_path, lines), tokenizer, eod_token="<eod>"))
    assert documents(result.path) == [[1, 2, 3], [1, 3], [1, 3, 3], [3], [3, 1, 3]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"truncation": True, "max_length": 2}, [[1, 2, 3], [1, 3]]),
        ({"padding": "max_length", "max_length": 4}, [[1, 2, 1, 3], [1, 3, 3, 3]]),
        ({"padding": "max_length", "max_length": 2, "truncation": True}, [[1, 2, 3], [1, 3]]),
        ({"padding": True}, [[1, 2, 1, 3], [1, 3]]),
        ({"max_length": 1}, [[1, 2, 1, 3], [1, 3]]),
    ],
)
def test_truncation_and_padding(options: dict[str, Any], expected: list[list[int]], tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a", "b"], ["<eod>"], **options)
    source = write_source(tmp_path, [line("a b a"), line("a")])
    result = pack_encoded_data(config_of(source, tokenizer, eod_token="<eod>"))
    assert documents(result.path) == expected


def test_a_token_that_does_not_fit_costs_only_its_document(tmp_path: Path) -> None:
    words = ["<unk>", "<eod>", *(f"w{i}" for i in range(2, 256))]
    tokenizer = tokenizer_of(tmp_path, words, ["<large>"])
    lines = [line("w2"), line("w3 <large> w4 <large>"), line("w5")]
    result = pack_encoded_data(config_of(write_source(tmp_path, lines), tokenizer, eod_token="<eod>"))
    assert documents(result.path) == [[2, 1], [5, 1]]
    assert result.skipped == [{"line": 1, "reason": "token 256 does not fit into 1 byte(s)"}]


def test_an_end_of_document_token_that_does_not_fit_is_an_error_at_once(tmp_path: Path) -> None:
    words = ["<unk>", *(f"w{i}" for i in range(1, 256))]
    config = config_of(
        write_source(tmp_path, [line("w1")]), tokenizer_of(tmp_path, words, ["<eod>"]), eod_token="<eod>"
    )
    with pytest.raises(ValueError, match="has the id 256, which does not fit into the 1 byte"):
        pack_encoded_data(config)
    assert not (tmp_path / "src.pbin").exists()


SCRIPT = """
import sys
from fastpack.build.packing import pack, run
from fastpack.build.tokenizing import interface as tokenize
tokenize.BytesTokenizer.worker_bytes = 20_000
run.MIN_BATCH_BYTES = run.MAX_BATCH_BYTES = 20_000
source = sys.argv[1]
pack.pack_encoded_data({
    "settings": {"src_path": source, "dst_path": source + ".pbin", "jq_pattern": ".text", "num_cpus": 2,
                 "eod_token": "<|endoftext|>"},
    "tokenizer": {"variant_key": "builtin_bytes"},
}, progress=lambda done, total: print(done, flush=True) or sys.stdin.readline())
"""


def children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def running(tmp_path: Path) -> Any:
    """A pack run with two workers, stopped after its first batch (it waits for a line on its standard input)."""
    source = write_source(tmp_path, [line("x" * 5000) for _ in range(400)])
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_workers_and_target_do_not_outlive_a_killed_parent(running: Any, tmp_path: Path) -> None:
    workers = children(running.pid)
    assert len(workers) == 2
    running.send_signal(signal.SIGKILL)
    running.wait()
    wait_until(lambda: not any(map(is_running, workers)))
    assert not (tmp_path / "src.jsonl.pbin").exists()
    result = pack_encoded_data(config_of(tmp_path / "src.jsonl", dst_path=tmp_path / "src.jsonl.pbin"))
    assert result.documents == 400
    assert not [p for p in tmp_path.iterdir() if "partial" in p.name]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_killed_worker_ends_the_run_with_a_clear_error(running: Any, tmp_path: Path) -> None:
    workers = children(running.pid)
    os.kill(workers[0], signal.SIGKILL)
    _, errors = running.communicate(input=b"\n" * 200)
    assert running.returncode == 1
    assert b"JobError: a tokenising process died (killed by SIGKILL" in errors
    assert b"nothing was written" in errors
    assert not any(map(is_running, workers))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["src.idx", "src.jsonl"]


def test_a_worker_that_cannot_start_says_why(
    tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer vanishes between the check in the main process and the workers' start."""
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a"], ["<eod>"])
    source = write_source(tmp_path, [line("a " * 1000)] * 20)
    real = pack_module.files.may_write

    def vanish(*args: Any) -> bool:
        (tmp_path / "tokenizer.json").unlink(missing_ok=True)
        return real(*args)

    monkeypatch.setattr(pack_module.files, "may_write", vanish)
    with pytest.raises(JobError, match=r"FileNotFoundError: .*tokenizer\.json"):
        pack_encoded_data(config_of(source, tokenizer, num_cpus=2, eod_token="<eod>"))
    assert not source.with_suffix(".pbin").exists()


def test_the_environment_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "true"):
        monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
        if value is not None:
            monkeypatch.setenv("TOKENIZERS_PARALLELISM", value)
        pack_lines(tmp_path, [line("a")])
        assert os.environ.get("TOKENIZERS_PARALLELISM") == value


def test_an_index_in_characters_is_refused_with_the_way_to_repair_it(golden: Path, peer: Path) -> None:
    """Modalities 0.5.0 packs such lines cut short, or drops them: here nothing is packed before the index is mended."""
    source, legacy = Path("jsonl/docs_crlf.jsonl"), Path("docs_crlf.v0.2.0.idx")
    shutil.copy(golden / "modalities" / "legacy" / "v0.2.0" / legacy, legacy)
    settings = {
        "src_path": str(source),
        "dst_path": "out.pbin",
        "index_path": str(legacy),
        "eod_token": "<|endoftext|>",
    }
    settings |= {"jq_pattern": ".text", "num_cpus": 1}
    config = {"settings": settings, "tokenizer": {"component_key": "tokenizer", "variant_key": "builtin_bytes"}}
    with pytest.raises(ValueError, match="--repair-legacy"):
        pack_encoded_data(config)
    assert not Path("out.pbin").exists()
    repair_raw_index(source, legacy)
    assert pack_encoded_data(config).documents == len(read_raw_index(legacy))
