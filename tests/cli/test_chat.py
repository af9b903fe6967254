"""The command `chat` and its older name."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
from command_line import Cli

GOOD = '{"turns": [{"from": "human", "value": "hi"}]}\n'


@pytest.fixture(autouse=True)
def peer(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like Modalities' when it wrote the golden files, without its output."""
    shutil.copytree(golden / "modalities" / "chat", tmp_path / "chat", ignore=shutil.ignore_patterns("out"))
    shutil.copytree(golden / "modalities" / "tokenizers", tmp_path / "tokenizers")
    monkeypatch.chdir(tmp_path / "chat")
    return golden / "modalities" / "chat" / "out"


def same(case: str, peer: Path) -> bool:
    trees = ((root / case).glob("*/*") for root in (Path("out"), peer))
    ours, theirs = ({p.name: p.read_bytes() for p in tree if p.suffix != ".fptok"} for tree in trees)
    return ours == theirs and bool(ours)


@pytest.mark.parametrize(
    "words",
    [
        ["chat", "configs/one_byte.yaml"],
        ["prepare_instruction_tuning_data", "--config_file_path", "configs/one_byte.yaml"],
        ["data", "prepare_instruction_tuning_data", "--config-file-path", "configs/one_byte.yaml"],
    ],
)
def test_all_spellings(words: list[str], peer: Path, cli: Cli) -> None:
    out, err = cli(*words)
    assert same("one_byte", peer)
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["train", "val", "test"]
    assert lines[0].endswith(".pbin")
    assert lines[3].startswith("out/one_byte/few_")
    assert err == ""
    assert cli(*words, "--quiet") == ("", "")


def test_json(cli: Cli) -> None:
    report = cli.json("chat", "configs/empty_partition.yaml")
    assert report["seconds"] >= 0
    assert (report["dry_run"], report["kept_existing"]) == (False, False)
    assert report["config_path"].startswith(report["folder"] + "/instruction_chat_template_config.")
    train, val, test = report["partitions"]
    assert train["rows"] + test["rows"] == 12
    assert train["documents"] == train["rows"]
    assert train["tokens"] > 0
    assert (val["rows"], val["pbin_path"], val["skipped"]) == (0, None, [])


def test_dry_run(cli: Cli) -> None:
    out, _ = cli("chat", "configs/empty_partition.yaml", "--dry-run")
    assert "rows -> out/empty_partition/few_" in out
    assert "val: no rows; out/empty_partition/few_" in out
    assert out.endswith("nothing written (dry run)\n")
    assert not Path("out").exists()
    assert cli.json("chat", "configs/empty_partition.yaml", "--dry_run")["dry_run"] is True


def test_policies(cli: Cli) -> None:
    words = ["chat", "configs/one_byte.yaml"]
    cli(*words, "-q")
    assert "exists. Pass --force to overwrite it." in cli(*words, "--file_existence_policy", "error", code=1).err
    assert cli(*words, "--if-exists", "skip").out.endswith(": exists, kept\n")
    cli(*words, "--force", "-q")


def test_skipped_conversations_are_reported(cli: Cli) -> None:
    config = Path("configs/referring.yaml").read_text().replace("${settings.messages_key} ${chat_template_data.n}.", "")
    Path("c.yaml").write_text(config.replace("{% endfor %} ", "{% endfor %}"))
    Path("data/few.jsonl").write_text(GOOD * 3 + '{"turns": []}\n' * 30)
    out, err = cli("chat", "c.yaml")
    assert err.count(".jsonl: skipped line ") == 5
    assert "skipped 25 more (--json lists all)" in err
    assert " skipped -> out/referring/few_" in out
    assert "empty text" in cli("chat", "c.yaml", "--on_faulty", "error", code=1).err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "or one configuration"),
        (["a.yaml", "--config_file_path", "b.yaml"], 2, "or one configuration"),
        (["a.yaml", "--loss", "all"], 2, "--loss: not with a configuration"),
        (["a.jsonl"], 2, "--tokenizer is needed"),
        (["absent.yaml"], 1, "absent.yaml: No such file"),
        (["configs/packing.yaml"], 1, "split_config: found nothing"),
    ],
)
def test_failures(words: list[str], code: int, message: str, cli: Cli) -> None:
    out, err = cli("chat", *words, code=code)
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_faulty_row_is_one_line(cli: Cli) -> None:
    Path("data/few.jsonl").write_text(GOOD + '{"turns": [{"from": "robot"}]}\n')
    err = cli("chat", "configs/one_byte.yaml", code=1).err
    assert err.startswith('fastpack: error: data/few.jsonl: line 1 at byte 46: turn 0: from is "robot", not in the ')
    assert err.count("\n") == 1


def test_help(cli: Cli) -> None:
    out = cli("prepare_instruction_tuning_data", "--help").out
    assert "example: fastpack chat chats.jsonl --tokenizer DIR -o sft.pbin" in out
    assert "(default: error; overwrite with a configuration)" in " ".join(out.split())


CHAT = {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
TEMPLATE += "{% if add_generation_prompt %}assistant: {% endif %}"


@pytest.fixture
def chats() -> list[str]:
    """Write conversations and a template; return the words of the command that packs them."""
    Path("t.jinja").write_text(TEMPLATE)
    rows = [CHAT, CHAT, {"messages": [{"role": "robot", "content": "x"}]}, {"messages": CHAT["messages"][:1]}]
    Path("chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"messages": [{"ro')
    return ["chat", "chats.jsonl", "--tokenizer", "bytes", "--chat-template", "t.jinja"]


def test_conversations_without_a_configuration(chats: list[str], cli: Cli) -> None:
    out, err = cli(*chats, "-o", "sft.pbin")
    first, second = out.splitlines()
    assert first == "recognised: 2 x messages (OpenAI)"
    assert second.startswith(
        "sft.pbin: 2 conversations, 52 tokens, of which 4 (7.7 %) count in the loss, 3 skipped, in "
    )
    assert [line.split(": ")[0] for line in err.splitlines()] == [f"skipped line {n}" for n in (3, 4, 5)]
    assert 'unknown role "robot"' in err
    assert "truncated: the last message is of the role user" in err
    assert "exists" in cli(*chats, "-o", "sft.pbin", code=1).err
    report = cli.json(*chats, "-o", "sft.pbin", "--force", "--loss", "all")
    assert (report["tokens"], report["loss_tokens"], report["turns"]) == (52, 52, 4)
    assert report["recognised"] == {"messages": 2}


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "gz"])
def test_a_dry_run_estimates_from_a_sample(chats: list[str], kind: str, cli: Cli) -> None:
    rows = [CHAT, {"messages": [{"role": "robot", "content": "x"}]}, *[CHAT] * 98]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "chats.parquet")
    else:
        Path("chats.jsonl").write_text(data)
    if kind == "gz":
        Path("chats.jsonl.gz").write_bytes(gzip.compress(data.encode()))
    chats[1] = {"jsonl": "chats.jsonl", "parquet": "chats.parquet", "gz": "chats.jsonl.gz"}[kind]
    before = sorted(os.listdir())
    (planned,) = cli.json(*chats, "-o", "sft.pbin", "--dry-run")["files"]
    assert sorted(os.listdir()) == before
    names = ("lines", "estimated_documents", "estimated_tokens", "estimated_loss_tokens")
    assert [planned[name] for name in names] == ([None] * 4 if kind == "gz" else [100, 99, 99 * 26, 99 * 2])
    out = cli(*chats, "-o", "sft.pbin", "--dry-run").out
    assert ("about 99 conversations, 2,574 tokens, of which 198 count in the loss, 5,148 bytes;" in out) == (
        kind != "gz"
    )
    cli(*chats, "-o", "sft.pbin")
    assert "exists" in cli(*chats, "-o", "sft.pbin", "--dry-run", code=1).err


def test_a_dry_run_of_preference_pairs_estimates_both_files(chats: list[str], cli: Cli) -> None:
    Path("chats.jsonl").write_text(json.dumps({"prompt": "1 + 1?", "chosen": "2", "rejected": "three"}) + "\n")
    planned = cli.json(*chats, "-o", "dpo.pbin", "--dry-run")["files"]
    assert [one["path"] for one in planned] == ["dpo.chosen.pbin", "dpo.rejected.pbin"]
    assert [one["estimated_loss_tokens"] for one in planned] == [2, 6]


def test_ranks_write_the_same_files(chats: list[str], cli: Cli) -> None:
    rows = [{"messages": [{"role": "assistant", "content": "x" * n}]} for n in range(60)]
    Path("chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = cli.json(*chats, "-o", "whole.pbin")
    words = [*chats, "-o", "ranks.pbin", "--task-bytes", "700"]
    for rank in ("0", "1"):
        cli(*words, "--rank", rank, "--world-size", "2")
    report = cli.json(*words, "--collect")
    for suffix in ("", ".mask"):
        assert Path(f"ranks.pbin{suffix}").read_bytes() == Path(f"whole.pbin{suffix}").read_bytes()
    changed = {"path", "seconds"}
    assert {k: v for k, v in report.items() if k not in changed} == {k: v for k, v in whole.items() if k not in changed}


def test_nothing_is_written_if_no_conversation_can_be_packed(chats: list[str], cli: Cli) -> None:
    Path("t.jinja").write_text("{{ raise_exception('never') }}")
    assert "the template failed: never" in cli(*chats, "-o", "sft.pbin", code=1).err
    assert list(Path().glob("sft*")) == []


def test_an_unknown_messages_field_lists_the_columns(chats: list[str], cli: Cli) -> None:
    rows = [{"dialog": CHAT["messages"], "id": number} for number in range(3)]
    Path("chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "chats.parquet")
    table = [chats[0], "chats.parquet", *chats[2:]]
    for words, message in (
        (chats, 'no conversation among its keys ["dialog", "id"]: expected messages, conversations, or a prompt'),
        (chats, "--messages-field names the key of the messages"),
        ([*chats, "--messages-field", "x"], 'no \'x\' among its keys ["dialog", "id"]'),
        (table, "chats.parquet: no conversations in its columns dialog, id: expected messages"),
        (table, "--messages-field names another column"),
        ([*table, "--messages-field", "x"], "chats.parquet has no column 'x'; it has: dialog, id"),
    ):
        assert message in cli(*words, code=1).err
    for words in (chats, table):
        assert cli.json(*words, "--messages-field", "dialog", "-o", f"{words[1]}.pbin")["documents"] == 3


def test_a_named_field_is_read_in_rows_of_preference_pairs(chats: list[str], cli: Cli) -> None:
    row = {"dialog": CHAT["messages"], "chosen": "a", "rejected": "b"}
    Path("chats.jsonl").write_text(json.dumps(row) + "\n")
    assert cli.json(*chats, "--messages-field", "dialog", "-o", "a.pbin")["path"] == "a.pbin"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), "chats.parquet")
    chats[1] = "chats.parquet"
    assert cli.json(*chats, "--messages-field", "dialog", "-o", "b.pbin")["path"] == "b.pbin"
