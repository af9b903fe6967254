"""`fastpack init`: the script runs as written, for every kind of data, tokenizer and framework."""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Cli
from terminal import run_on_terminal

import fastpack
from fastpack.cli.init import FRAMEWORKS

FASTPACK = [sys.executable, "-m", "fastpack"]
TOKENIZER = str(Path(__file__).parents[1] / "golden" / "modalities" / "tokenizers" / "tok_bpe2000")
DOCUMENTS = [f"Document {i} has {'many ' * (i % 30)}words." for i in range(300)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_lines() -> str:
    Path("own data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    return "own data.jsonl"


def write_pattern() -> str:
    Path("crawl").mkdir()
    for part in range(3):
        lines = [json.dumps({"body": text}) + "\n" for text in DOCUMENTS[part::3]]
        Path(f"crawl/{part}.jsonl").write_text("".join(lines))
    return "crawl/*.jsonl"


def write_parquet() -> str:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"text": DOCUMENTS}), "corpus.parquet")
    return "corpus.parquet"


def write_texts() -> str:
    Path("texts").mkdir()
    for number, text in enumerate(DOCUMENTS[:40]):
        Path(f"texts/{number}.txt").write_text(text * 10)
    return "texts"


DATA: dict[str, Callable[[], str]] = {
    "sample": lambda: "sample",
    "lines": write_lines,
    "pattern": write_pattern,
    "parquet": write_parquet,
    "texts": write_texts,
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("tokenizer", ["bytes", TOKENIZER], ids=["bytes", "bpe"])
@pytest.mark.parametrize("data", DATA)
def test_the_script_runs_and_continues(
    data: str, tokenizer: str, framework: str, here: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    if framework == "torch":
        pytest.importorskip("torch", reason="the script imports torch, which is not installed")
    field = ["--text-field", "body"] if data == "pattern" else []
    words = ["--data", DATA[data](), "--tokenizer", tokenizer, "--framework", framework, "--seq-len", "64", *field]
    assert cli("init", "start.py", *words).out == "start.py: run it by `python start.py`\n"
    compile(Path("start.py").read_text(), "start.py", "exec")
    assert max(map(len, Path("start.py").read_text().splitlines())) <= 120
    printed = []
    for _ in range(2):
        runpy.run_path("start.py", run_name="__main__")
        printed.append(capsys.readouterr().out)
    (packed,) = here.glob("*.pbin")
    with fastpack.PackedFile(packed) as file:
        assert len(file) >= 40
    report, _, printed[0] = printed[0].partition("\n")
    assert report.startswith("packed ")
    if framework == "numpy":
        assert printed[0].startswith("50 steps of (4, 64) tokens, ")
        (state,) = here.glob("*.state.json")
        assert json.loads(state.read_text())["elastic"]["run"]["samples"] == 2 * 50 * 4
    else:
        steps = [line.split()[1] for text in printed for line in text.splitlines()]
        assert steps == [f"{step}:" for step in range(10, 101, 10)]


def test_enter_takes_the_defaults(here: Path) -> None:
    write_lines()
    seen = run_on_terminal([*FASTPACK, "init"], keys="\n\n\n")
    assert seen.code == 0
    for question in ("[own data.jsonl]: ", "[bytes]: ", "Framework: torch or numpy ["):
        assert question in seen.text
    assert seen.text.rstrip().endswith("train.py: run it by `python train.py`")
    assert 'DATA = "own data.jsonl"' in Path("train.py").read_text()


def test_a_wrong_answer_is_asked_again(here: Path) -> None:
    seen = run_on_terminal([*FASTPACK, "init"], keys="nowhere.jsonl\nsample\nno/such/folder\nbytes\njax\nnumpy\n")
    assert seen.code == 0
    assert "Error: nowhere.jsonl does not exist" in seen.text
    assert "no/such/folder" in seen.text
    assert "Error: 'jax' is neither torch nor numpy" in seen.text
    assert "import torch" not in Path("train.py").read_text()


def test_given_answers_are_not_asked(here: Path, cli: Cli) -> None:
    result = cli.json("init", "--tokenizer", TOKENIZER)
    assert result["data"] == "sample"
    assert result["written"] is True
    assert '"<|endoftext|>"' in Path("train.py").read_text()
    assert cli("init", code=1).err == "fastpack: error: train.py exists. Pass --force to overwrite it.\n"
    assert cli("init", "--if-exists", "skip").out == "train.py: exists, kept\n"
    assert "SEQ_LEN, BATCH_SIZE, STEPS = 96, " in (
        cli("init", "--force", "--non-interactive", "--seq-len", "96") and Path("train.py").read_text()
    )


def test_data_without_texts_and_unclear_tokenizers_are_refused(here: Path, cli: Cli) -> None:
    write_pattern()
    words = ["init", "--non-interactive", "--data", "crawl"]
    assert cli(*words, code=2).err.endswith("crawl: no text under 'text'. Pass --text-field with the right name.\n")
    model = Path("bare.json")
    model.write_text(json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}}))
    assert "--eos-token" in cli(*words, "--text-field", "body", "--tokenizer", model, code=2).err
    assert set(os.listdir()) == {"crawl", "bare.json"}


@pytest.mark.parametrize(("sent", "code", "message"), [("\x03", 130, ""), ("\x04", 1, "the input ended before")])
def test_ctrl_c_and_the_end_of_input_write_nothing(sent: str, code: int, message: str, here: Path) -> None:

    def waits(text: str) -> bool:
        return "[sample]: " in text and time.sleep(0.3) is None  # the prompt comes before the read

    seen = run_on_terminal([*FASTPACK, "init"], when=waits, send=sent)
    assert seen.code == code
    assert message in seen.text
    assert "Traceback" not in seen.text
    assert os.listdir() == []
