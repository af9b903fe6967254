"""Prepare instruction-tuning data: Modalities' files byte for byte, and no partial files after a failure."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastpack import PackedFile, read_raw_index
from fastpack.io import TOKENIZER, TargetExists
from fastpack.packing.chat.conversations import FaultyRow
from fastpack.packing.chat.instruction_tuning import prepare_instruction_tuning_data

CASES = ["split", "tojson", "train_only", "val_and_test", "empty_partition", "drawing", "referring", "one_byte"]


def tree(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below `folder`, including hidden files, without recorded tokenizers."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != TOKENIZER)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def modalities_folder(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the working directory in which Modalities wrote the golden files, without its output."""
    shutil.copytree(golden / "modalities" / "chat", tmp_path / "chat", ignore=shutil.ignore_patterns("out"))
    shutil.copytree(golden / "modalities" / "tokenizers", tmp_path / "tokenizers")
    monkeypatch.chdir(tmp_path / "chat")
    return golden / "modalities" / "chat" / "out"


@pytest.mark.parametrize("case", CASES)
def test_files_equal_those_of_modalities(case: str, modalities_folder: Path) -> None:
    before = random.getstate()
    result = prepare_instruction_tuning_data(f"configs/{case}.yaml")
    assert tree(Path("out") / case) == tree(modalities_folder / case)
    assert len(tree(Path("out") / case)) > 3
    assert random.getstate() == before
    assert Path(result.config_path).read_bytes() == Path(f"configs/{case}.yaml").read_bytes()
    for partition in result.partitions:
        assert Path(partition.jsonl_path).read_bytes().count(b"\n") == partition.rows == partition.documents


def test_golden_cases_are_complete(modalities_folder: Path) -> None:
    assert sorted(path.name for path in modalities_folder.iterdir()) == sorted(CASES)


GOOD = '{"messages": [{"role": "human", "value": "hi"}]}\n'
CHAT = {
    "settings": {
        "src_path": "data/s.jsonl",
        "dst_path": "out/chat.jsonl",
        "messages_key": "messages",
        "pbin_creation_config_file_path": "configs/packing.yaml",
        "split_config": {"splitting": {"train": 50, "val": 50, "test": 0}, "seed": 1},
    },
    "instruction_data_transformation": {"role_mapping": {"human": "User"}},
    "jinja2_chat_template": "{% for t in messages %}{{ t.role }}: {{ t.value }}{% endfor %}",
    "chat_template_data": {},
}


def changed(tree: Any, path: str, value: Any) -> Any:
    """Return a copy of `tree` with the value at a dotted path replaced, or removed (None)."""
    copy = deepcopy(tree)
    *rooms, key = path.split(".")
    node = copy
    for room in rooms:
        node = node[room]
    if value is None:
        del node[key]
    else:
        node[key] = value
    return copy


def write_config(tree: Any = CHAT, source: str = GOOD * 20) -> str:
    Path("c.yaml").write_text(yaml.dump(tree))
    Path("data/s.jsonl").write_text(source)
    return "c.yaml"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("settings", None, "c.yaml: settings: found nothing, expected a mapping"),
        ("settings", [1], r"c.yaml: settings: found \[1\], expected a mapping"),
        ("settings.src_path", None, "settings.src_path: found nothing"),
        ("settings.src_path", "absent.jsonl", "settings.src_path: absent.jsonl does not exist"),
        ("settings.dst_path", "", "settings.dst_path: found '.'"),
        ("settings.dst_path", "out/c.idx", "expected the name of a JSON Lines file"),
        ("settings.dst_path", "out/c.pbin", "expected the name of a JSON Lines file"),
        ("settings.dst_path", "out/c.jsonl.gz", "expected the name of a JSON Lines file"),
        ("settings.messages_key", 3, "settings.messages_key: found 3, expected a string"),
        ("settings.pbin_creation_config_file_path", None, "pbin_creation_config_file_path: found nothing"),
        ("settings.pbin_creation_config_file_path", "absent.yaml", "absent.yaml does not exist"),
        ("settings.split_config", None, "settings.split_config: found nothing"),
        ("settings.split_config.seed", "x", "settings.split_config.seed: found 'x', expected an integer"),
        ("settings.split_config.seed", float("nan"), "seed: found nan"),
        ("settings.split_config.splitting.val", 40, "found 50, 40, 0, expected percentages that sum to 100"),
        ("settings.split_config.splitting", {"train": 150, "val": -50, "test": 0}, "found 150, -50, 0"),
        ("settings.split_config.splitting.test", None, "splitting.test: found nothing"),
        ("settings.split_config.splitting.val", 49.5, "splitting.val: found 49.5, expected an integer"),
        ("instruction_data_transformation.role_mapping", {1: "a"}, "role_mapping: found 1: 'a'"),
        ("instruction_data_transformation.role_mapping", None, "role_mapping: found nothing"),
        ("jinja2_chat_template", None, "jinja2_chat_template: found nothing, expected a string"),
        ("jinja2_chat_template", "{% for %}", "jinja2_chat_template: line 1: "),
        ("chat_template_data", None, "chat_template_data: found nothing, expected a mapping"),
        ("chat_template_data", {1: 2}, "chat_template_data: found the key 1"),
    ],
)
def test_invalid_configuration(path: str, value: Any, message: str, modalities_folder: Path) -> None:
    config = write_config(changed(CHAT, path, value))
    with pytest.raises(ValueError, match=message):
        prepare_instruction_tuning_data(config)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("settings", None, "settings: found None"),
        ("settings.eod_token", None, "settings.eod_token: found nothing"),
        ("settings.eod_token", "nosuch", "not represented by a single token id"),
        ("settings.jq_pattern", ".foo-bar", "jq rejects"),
        ("settings.num_cpus", 0, "settings.num_cpus: found 0"),
        ("tokenizer.config.pretrained_model_name_or_path", "absent", "absent"),
        ("tokenizer.variant_key", "nosuch", "nosuch"),
    ],
)
def test_packing_configuration_is_validated_first(path: str, value: Any, message: str, modalities_folder: Path) -> None:
    packing = yaml.safe_load(Path("configs/packing.yaml").read_text().replace("2024-01-01", "x"))
    Path("configs/packing.yaml").write_text(yaml.dump(changed(packing, path, value)))
    with pytest.raises(ValueError, match=f"configs/packing.yaml: .*{message}"):
        prepare_instruction_tuning_data(write_config(source="not even JSON"))
    assert not Path("out").exists()


def test_packing_that_differs_between_partitions_is_rejected(modalities_folder: Path) -> None:
    packing = (
        Path("configs/packing.yaml")
        .read_text()
        .replace("jq_pattern: .chat", 'jq_pattern: ".chat # ${modalities_env:config_file_path}"')
    )
    Path("configs/packing.yaml").write_text(packing)
    with pytest.raises(ValueError, match="another configuration in each partition"):
        prepare_instruction_tuning_data(write_config())
    assert not list(Path("out").glob("*/*.pbin"))


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("source", [GOOD * 30_000 + "{}\n" + GOOD, "\n", GOOD + '{"messages": [{"role": "robot"}]}'])
def test_faulty_row_leaves_no_files(source: str, dry_run: bool, modalities_folder: Path) -> None:
    with pytest.raises(FaultyRow, match=r"^data/s.jsonl: line \d+ at byte \d+: "):
        prepare_instruction_tuning_data(write_config(source=source), dry_run=dry_run)
    assert tree(Path("out")) == {}
    assert list(Path("out").rglob("*")) == [] if Path("out").exists() else True


def test_source_without_rows(modalities_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"data/s.jsonl has no rows"):
        prepare_instruction_tuning_data(write_config(source=""))
    assert tree(Path("out")) == {}


def test_failure_keeps_the_files_of_the_previous_run(modalities_folder: Path) -> None:
    folder = Path(prepare_instruction_tuning_data(write_config()).folder)
    before = tree(folder)
    with pytest.raises(FaultyRow):
        prepare_instruction_tuning_data(write_config(source=GOOD * 20 + "nonsense"))
    assert tree(folder) == before


def test_existence_policies(modalities_folder: Path) -> None:
    config = write_config()
    result = prepare_instruction_tuning_data(config, if_exists="error")
    folder = Path(result.folder)
    before = tree(folder)
    write_config(source=GOOD * 30)
    with pytest.raises(TargetExists, match="instruction_chat_template_config"):
        prepare_instruction_tuning_data(config, if_exists="error")
    kept = prepare_instruction_tuning_data(config, if_exists="skip")
    assert (kept.kept_existing, kept.folder, kept.partitions) == (True, result.folder, [])
    assert tree(folder) == before
    Path(result.config_path).unlink()  # as after a run that was killed while packing
    with pytest.raises(TargetExists, match="chat_train"):
        prepare_instruction_tuning_data(config, if_exists="error")
    again = prepare_instruction_tuning_data(config, if_exists="skip")
    assert sum(partition.rows for partition in again.partitions) == 30
    with pytest.raises(ValueError, match="if_exists: found 'never'"):
        prepare_instruction_tuning_data(config, if_exists="never")  # type: ignore[arg-type]


def test_partition_without_rows_removes_its_old_files(modalities_folder: Path) -> None:
    config = write_config()
    first = prepare_instruction_tuning_data(config)
    write_config(source=GOOD)
    second = prepare_instruction_tuning_data(config)
    (empty,) = [partition for partition in second.partitions if not partition.rows]
    (old,) = [partition for partition in first.partitions if partition.name == empty.name]
    assert (empty.index_path, empty.pbin_path, empty.pbin_config_path) == (None, None, None)
    assert Path(empty.jsonl_path).read_bytes() == b""
    assert not any(map(os.path.exists, filter(None, (old.index_path, old.pbin_path, old.pbin_config_path))))


def test_dry_run_writes_nothing_and_returns_the_paths(modalities_folder: Path) -> None:
    config = write_config()
    planned = prepare_instruction_tuning_data(config, dry_run=True)
    assert planned.dry_run
    assert not Path("out").exists()
    done = prepare_instruction_tuning_data(config)
    assert (planned.folder, planned.config_path) == (done.folder, done.config_path)
    for before, after in zip(planned.partitions, done.partitions, strict=True):
        assert replace(after, documents=0, tokens=0) == before
    written = {path for partition in done.partitions for path in list(vars(partition).values())[2:6]} | {
        done.config_path
    }
    assert {str(path) for path in Path(done.folder).iterdir() if path.suffix != TOKENIZER} == written


def test_name_with_several_dots_keeps_them(modalities_folder: Path) -> None:
    """Modalities 0.5.0 names all partitions chat.<hash>.v1..jsonl, so that each replaces the previous one."""
    result = prepare_instruction_tuning_data(write_config(changed(CHAT, "settings.dst_path", "out/chat.v1.jsonl")))
    digest = Path(result.folder).name.removeprefix("s_")
    names = sorted(path.name for path in Path(result.folder).iterdir() if path.suffix != TOKENIZER)
    assert f"chat.v1_train.{digest}.jsonl" in names
    assert f"chat.v1_val.{digest}.pbin" in names
    assert len(names) == 9


def test_chats_that_cannot_be_packed_are_skipped(modalities_folder: Path) -> None:
    tree_ = changed(CHAT, "jinja2_chat_template", "{% for t in messages %}{{ t.value }}{% endfor %}")
    tree_ = changed(tree_, "settings.split_config.splitting", {"train": 100, "val": 0, "test": 0})
    config = write_config(tree_, source=GOOD + '{"messages": []}\n' + GOOD)
    (partition,) = prepare_instruction_tuning_data(config).partitions
    assert (partition.rows, partition.documents) == (3, 2)
    assert partition.skipped[0]["line"] == 2
    assert partition.pbin_path is not None
    with PackedFile(partition.pbin_path) as file:
        assert len(file) == 2
    assert len(read_raw_index(str(partition.index_path))) == 3
    with pytest.raises(ValueError, match="line 2 at byte"):
        prepare_instruction_tuning_data(config, on_faulty="error")
    assert not list(Path(partition.pbin_path).parent.glob("instruction_chat_template_config*"))  # the job is unfinished


def test_progress_covers_rows_and_packing(modalities_folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    config = write_config(source=GOOD * 500)
    prepare_instruction_tuning_data(config, progress=lambda done, total: seen.append((done, total)))
    total = 2 * 500 * len(GOOD)
    assert {in_all for _, in_all in seen} == {total}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[0][0] == total // 2
    assert seen[-1][0] > 0.95 * total


def test_interrupted_run_leaves_no_partial_file(modalities_folder: Path) -> None:
    write_config(source=GOOD * 400_000)
    command = [sys.executable, "-m", "fastpack", "chat", "c.yaml", "-q"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while not list(Path().glob("out/*/.*.partial")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert tree(Path("out")) == {}
