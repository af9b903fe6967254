"""`fastpack prepare`: options, output, exit codes and the assistant."""

from __future__ import annotations

import builtins
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Cli

import fastpack
from fastpack.cli import main
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.sample_index import SampleIndex

Answers = Callable[..., list[str]]


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    shutil.copytree(golden / "energon/split", tmp_path / "ds", ignore=shutil.ignore_patterns(".nv-meta", "*.json"))
    return tmp_path / "ds"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Set the answers; return the questions."""

    def give(*texts: str) -> list[str]:
        asked: list[str] = []
        left: Iterator[str] = iter(texts)

        def answer(prompt: str = "") -> str:
            asked.append(prompt)
            try:
                return next(left)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr(builtins, "input", answer)
        return asked

    return give


def options(folder: Path, *more: str) -> list[str]:
    return ["prepare", str(folder), "--non-interactive", "--split-ratio", "8,1,1", *more]


def test_prepare(folder: Path, golden: Path, cli: Cli) -> None:
    map_text = '{"image": "jpg", "caption": "json[caption],txt"}'
    out, err = cli(*options(folder, "--sample-type", "CaptioningSample", "--field-map", map_text))
    assert out.splitlines() == [
        f"{folder}: 19 samples in 10 shards",
        "train: 8 shards, 14 samples",
        "val: 1 shard, 2 samples",
        "test: 1 shard, 3 samples",
        "fields: jpg, txt, json, mask.png",
    ]
    assert err == ""
    for name in (".info.json", "split.yaml", "dataset.yaml"):
        assert (folder / ".nv-meta" / name).read_bytes() == (golden / "energon/split/.nv-meta" / name).read_bytes()


def test_both_spellings_and_json(folder: Path, cli: Cli) -> None:
    words = ["prepare", str(folder), "--non_interactive", "--split_parts", "train:train/", "--split_parts", "val:val/"]
    result = cli.json(*words, "--num_workers", "2", "--sample_type", "CrudeWebdataset", "--exclude", "_1")
    assert list(result["splits"]) == ["train", "val"]
    assert result["samples"] == sum(result["shards"].values()) == 15
    assert result["part_types"] == ["jpg", "txt", "json", "mask.png"]
    assert (result["written"], result["reused"], result["skipped"], result["warnings"]) == (True, 0, {}, [])
    assert nvmeta.read_dataset_yaml(folder) == {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}


def test_an_already_prepared_dataset(folder: Path, cli: Cli) -> None:
    assert cli(*options(folder, "-q")) == ("", "")
    assert "Pass --force-overwrite to prepare it again." in cli(*options(folder), code=1).err
    assert "(10 unchanged)" in cli(*options(folder, "--force-overwrite")).out
    assert "unchanged" not in cli(*options(folder, "--resume", "--walk-all")).out


def test_dry_run(folder: Path, cli: Cli) -> None:
    assert cli("prepare", folder, "--split-ratio", "1,1,1", "--dry-run").out.splitlines() == [
        f"{folder}: would walk 10 of 10 shards",
        "train: 3 shards",
        "val: 3 shards",
        "test: 4 shards",
        "would write index.sqlite, index.uuid, .info.json, .fastpack.json, split.yaml",
    ]
    assert not (folder / ".nv-meta").exists()


def test_bad_shards_and_warnings(folder: Path, cli: Cli) -> None:
    os.truncate(folder / "val/v-1.tar", 600)
    assert f"fastpack: error: {folder}/val/v-1.tar: at byte " in cli(*options(folder), code=1).err
    words = ["prepare", str(folder), "--non-interactive", "--split-glob", "train:train/*.tar", "--split-glob", "x:y"]
    err = cli(*words, "--skip-bad-shards").err.splitlines()
    assert err[0].startswith(f"skipped val/v-1.tar: {folder}/val/v-1.tar: at byte ")
    assert err[1:] == [
        "warning: the split x has no shards: loading it will fail",
        "warning: 2 shards are in no split: val/v-03.tar, val/v-2.tar",
    ]


def test_without_sample_tables(folder: Path) -> None:
    assert main(options(folder, "--no-sample-tables", "-q")) == 0
    assert not SampleIndex(nvmeta.index_path(folder)).has_fields
    assert (folder / "val/v-1.tar.idx").stat().st_size == 24


def test_indexes_only(folder: Path, cli: Cli) -> None:
    assert "is not prepared" in cli("prepare", folder, "--tar-index-only", code=1).err
    cli(*options(folder, "-q"))
    nvmeta.index_path(folder).unlink()
    cli("prepare", folder, "--tar_index_only")
    assert len(SampleIndex(nvmeta.index_path(folder))) == 19
    cli("prepare", folder, "--tar-index-only", "--exclude", "x", code=2)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--non-interactive"], "non-interactive mode needs"),
        (["--json"], "non-interactive mode needs"),
        (["--non-interactive", "--split-ratio", "8,1"], "three numbers"),
        (["--non-interactive", "--split-ratio", "a,b,c"], "three numbers"),
        (["--split-ratio", "8,1,1", "--split-parts", "a:b"], "choose one of"),
        (["--non-interactive", "--split-parts", "train"], "NAME:PATTERN"),
        (["--non-interactive", "--split-glob", "train:"], "NAME:PATTERN"),
        (["--non-interactive", "--split-ratio", "8,1,1", "--sample-type", "Nothing"], "unknown sample type"),
        (["--non-interactive", "--split-ratio", "8,1,1", "--field-map", "{}"], "needs a sample type"),
        (["--split-ratio", "8,1,1", "--fix-duplicates"], "fix-duplicates DIR NEWDIR"),
    ],
)
def test_usage(folder: Path, words: list[str], reason: str, cli: Cli) -> None:
    out, err = cli("prepare", folder, *words, code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert reason in err
    assert not (folder / ".nv-meta").exists()


def test_jsonl(golden: Path, tmp_path: Path, cli: Cli) -> None:
    source = tmp_path / "blank_lines.jsonl"
    shutil.copy(golden / "energon/jsonl/blank_lines.jsonl", source)
    assert cli("prepare", source, "--dry-run").out == f"{source}.idx: would index 24 bytes of {source}\n"
    assert cli("prepare", source).out == f"{source}.idx: 2 samples\n"
    index = source.with_suffix(".jsonl.idx")
    assert index.read_bytes() == (golden / "energon/jsonl/blank_lines.jsonl.idx").read_bytes()
    assert cli.json("prepare", source) == {
        "path": str(index),
        "source_bytes": 24,
        "samples": 2,
        "written": True,
        "dry_run": False,
    }
    cli("prepare", source, "--split-ratio", "8,1,1", code=2)
    cli("prepare", tmp_path / "none.jsonl", code=1)
    (tmp_path / "x.txt").touch()
    cli("prepare", tmp_path / "x.txt", code=1)


QUESTIONS = [
    'Please enter a desired train/val/test split like "0.5, 0.2, 0.3" or "8,1,1": ',
    "Do you want to create a dataset.yaml interactively? [Y/n]: ",
    "Please enter a number to choose a class: ",
    "Do you want to set a simple field_map[Y] (or write your own sample_loader [n])? [Y/n]: ",
]


def test_assistant_with_a_field_map(folder: Path, answers: Answers, cli: Cli) -> None:
    asked = answers("8, 1, 1", "", "12", "x", "1", "y", "jpg", "json[a],nothing", "json[a],txt", "")
    out = cli("prepare", folder).out
    field = "Please enter a webdataset field name for "
    assert asked == [
        *QUESTIONS[:2],
        *[QUESTIONS[2]] * 3,
        QUESTIONS[3],
        f"{field}'image' (torch.Tensor): ",
        f"{field}'label' (typing.Optional[int], default: None): ",
        f"{field}'label' (typing.Optional[int], default: None): ",
        f"{field}'label_name' (typing.Optional[str], default: None): ",
    ]
    assert nvmeta.read_dataset_yaml(folder) == {
        "sample_type": {"__module__": "megatron.energon", "__class__": "ImageClassificationSample"},
        "field_map": {"image": "jpg", "label": "json[a],txt"},
    }
    assert "sample 1 of train/part_00.tar:\n - jpg\n - txt\n - json\n{" in out
    assert "11. CrudeWebdataset" in out
    assert out.endswith("Done\n")


def test_assistant_for_a_prepared_dataset_with_a_loader(folder: Path, answers: Answers) -> None:
    asked = answers("8,1,1", "y", "8", "n")
    assert main(["prepare", str(folder)]) == 0
    assert asked == QUESTIONS
    loader = folder / ".nv-meta/sample_loader.py"
    assert "('jpg', 'txt', 'json', 'mask.png')" in loader.read_text()
    loader.write_text("mine")
    again = "It seems the dataset had already been prepared. Do you want to continue? [y/N]: "
    override = "Do you want to override the existing sample loader? [y/N]: "
    asked = answers("yes", "1,0,0", "", "8", "n", "maybe", "")
    assert main(["prepare", str(folder)]) == 0
    assert asked == [again, *QUESTIONS, override, override]
    assert loader.read_text() == "mine"
    answers("y", "1,0,0", "", "8", "n", "y")
    assert main(["prepare", str(folder)]) == 0
    assert "def sample_loader" in loader.read_text()


def test_assistant_can_be_cancelled(folder: Path, answers: Answers, cli: Cli) -> None:
    answers("8,1,1", "n")
    assert "manually" in cli("prepare", folder).out
    assert not (folder / ".nv-meta/dataset.yaml").exists()
    before = (folder / ".nv-meta/split.yaml").read_bytes()
    answers("")
    cli("prepare", folder, "--split-ratio", "1,1,1")
    assert (folder / ".nv-meta/split.yaml").read_bytes() == before
    answers("y", "8,1")
    cli("prepare", folder, code=2)
    answers("y")
    assert "the input ended before all questions were answered" in cli("prepare", folder, code=1).err


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("stop", [EOFError, KeyboardInterrupt])
@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], ["8,1,1", "y", "0", "y", "jpg", "txt"]),
        ([], ["8,1,1", "y", "8", "n", "y"]),
        (["--sample-type", "CaptioningSample"], ["8,1,1", "", "jpg", "txt"]),
        (["--sample-type", "TextSample", "--split-ratio", "8,1,1", "--walk-all"], ["n", "y"]),
    ],
)
def test_no_file_is_written_before_the_last_answer(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: type[BaseException],
    is_prepared: bool,
    words: list[str],
    given: list[str],
) -> None:
    command = ["prepare", str(folder), *words]
    if is_prepared:
        assert main(options(folder, "--sample-type", "CrudeWebdataset")) == 0
        (folder / ".nv-meta/sample_loader.py").write_text("mine")
        (folder / "val/v-2.tar").unlink()
        shutil.copy(folder / "val/v-1.tar.idx", folder / "val/v-03.tar.idx")  # one shard index to rewrite
        command += ["--force-overwrite"]
    else:
        for index in folder.rglob("*.idx"):
            index.unlink()
        given = given[:-1] if "n" in given else given  # no loader to override
    before = contents(folder)
    for n in range(len(given)):
        left = iter(given[:n])

        def answer(_: str = "", left: Iterator[str] = left) -> str:
            for text in left:
                return text
            raise stop

        monkeypatch.setattr(builtins, "input", answer)
        assert main(command) in (1, 130)
        assert contents(folder) == before
    left = iter(given)
    monkeypatch.setattr(builtins, "input", lambda _="": next(left))
    assert main(command) == 0
    assert contents(folder) != before


def test_no_loader_is_written_with_a_field_map(folder: Path, answers: Answers) -> None:
    answers("8,1,1", "y", "jpg", "txt")
    assert main(["prepare", str(folder), "--sample-type", "CaptioningSample"]) == 0
    assert not (folder / ".nv-meta/sample_loader.py").exists()
    assert nvmeta.read_dataset_yaml(folder)["field_map"] == {"image": "jpg", "caption": "txt"}
    assert nvmeta.read_info(folder)


def test_assistant_asks_only_for_missing_options(folder: Path, answers: Answers) -> None:
    words = ["prepare", str(folder), "--split-ratio", "8,1,1"]
    asked = answers()
    assert main([*words, "--skip-dataset-yaml"]) == 0
    assert main([*words, "--force-overwrite", "--sample-type", "CrudeWebdataset"]) == 0
    assert main([*words, "--force-overwrite", "--sample-type", "TextSample", "--field-map", '{"text": "txt"}']) == 0
    assert asked == []
    asked = answers("", "txt")
    assert main([*words, "--force-overwrite", "--sample-type", "TextSample", "--no-sample-tables"]) == 0
    assert len(asked) == 2


def test_assistant_through_a_pipe(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastpack", "prepare", str(folder)],
        input="8,1,1\ny\n11\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert nvmeta.read_dataset_yaml(folder)["__class__"] == "CrudeWebdataset"


def test_imported_modules(folder: Path) -> None:
    code = f"import sys\nfrom fastpack.cli import main\nmain({options(folder, '-q')!r})\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "fastpack.kernels.codecs.tar_cy" in loaded
    assert not {"numba", "tokenizers", "orjson", "tqdm", "tarfile", "torch"} & loaded


def test_use_from_python(folder: Path, golden: Path, tmp_path: Path) -> None:
    with pytest.warns(fastpack.DataWarning, match="the split nobody has no shards"):
        result = fastpack.prepare(folder, split_globs={"all": ["train/*", "val/*"], "nobody": "x"})
    assert isinstance(result, fastpack.PrepareResult)
    assert len(result.splits["all"]) == 10
    source = tmp_path / "plain.jsonl"
    shutil.copy(golden / "energon/jsonl/plain.jsonl", source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fastpack.prepare(source) == fastpack.index_webdataset_jsonl(source)
    with pytest.raises(ValueError, match="split_ratio: only for folders"):
        fastpack.prepare(source, split_ratio=(1, 1, 1))
    with pytest.raises(ValueError, match="not a folder of tar shards"):
        fastpack.prepare(golden / "README.md")
