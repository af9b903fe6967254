"""`merge`, `shuffle`, `chunk` and `filter`, with their old names."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from command_line import Cli

from fastpack import PackedFile, PackedWriter


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with packed and JSONL files of ten documents, which are their numbers, and a list of them."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        documents = range(10 * number, 10 * number + 10)
        with PackedWriter(f"{number}.pbin", 2) as writer:
            writer.append_many(documents, [1] * 10)
        Path(f"{number}.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % n for n in documents))
    with PackedWriter("lengths.pbin", 2) as writer:  # [0], [1, 1], [2, 2, 2], ...
        for n in range(6):
            writer.append([n] * (n + 1))
    Path("list.txt").write_text("0.txt\n1\n")
    return tmp_path


def numbers(path: str) -> list[int]:
    if path.endswith("jsonl"):
        return [json.loads(line)["n"] for line in Path(path).read_bytes().splitlines()]
    with PackedFile(path) as file:
        return [int(document[0]) for document in file]


def shuffled(seed: int) -> list[int]:
    order = list(range(10))
    random.Random(seed).shuffle(order)
    return order


MERGED = (list(range(20)), "20 documents, 20 tokens, BYTES bytes from 2 files")
SHUFFLED = {"pbin": "10 documents, 10 tokens, BYTES bytes", "jsonl": "10 lines, BYTES bytes"}
CALLS = [  # the words of a call, the documents in its output, and its message
    *((f"{name} 0.pbin 1.pbin out.pbin", *MERGED) for name in ("merge", "merge_packed_data", "data merge_packed_data")),
    *(
        (f"{name} {source}.{kind} {target}.{kind} --seed -3", shuffled(-3), SHUFFLED[kind])
        for name, kind in (
            ("shuffle", "pbin"),
            ("data shuffle_tokenized_data", "pbin"),
            ("shuffle", "jsonl"),
            ("shuffle_jsonl_data", "jsonl"),
        )
        for source, target in (
            ("0", "out"),
            ("--input-data-path 0", "--output-data-path out"),
            ("--batch_size 7 --input_data_path 0", "--output_data_path out"),
        )
        if kind == "pbin" or "batch" not in source
    ),
]


@pytest.mark.parametrize(("words", "documents", "message"), CALLS)
def test_all_names_and_spellings(words: str, documents: list[int], message: str, cli: Cli) -> None:
    printed = cli(*words.split())
    target = "out.jsonl" if "jsonl" in words else "out.pbin"
    assert numbers(target) == documents
    message = message.replace("BYTES", str(Path(target).stat().st_size))
    assert printed == (f"{target}: {message}\n", "")


@pytest.mark.parametrize("mark", ["-", "_"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("create_shuffled_dataset_chunk", "pbin"),
        ("create_shuffled_jsonl_chunk", "jsonl"),
        ("chunk", "pbin"),
        ("chunk", "jsonl"),
    ],
)
def test_chunk_of_a_list_of_sources(name: str, kind: str, mark: str, cli: Cli) -> None:
    options = f"--input file list path=list.txt|--input data root path=.|--output chunk file path=out.{kind}"
    options += "|--chunk id=1|--num chunks=3|--global seed=4"
    out = cli("data", name, *options.replace(" ", mark).split("|")).out
    assert sorted(numbers(f"out.{kind}")) == [4, 5, 6, 14, 15, 16]
    assert out.startswith(f"out.{kind}: 6 ")
    assert out.endswith("bytes from 2 files\n")
    cli("chunk", f"0.{kind}", f"1.{kind}", "--chunk-id=1", "--num-chunks=3", "--seed=4", "-o", "again")
    assert Path("again").read_bytes() == Path(f"out.{kind}").read_bytes()


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (["--min-length", "5"], [4, 5]),
        (["--max_length", "2"], [0, 1]),
        (["--min_length=2", "--max-length=3"], [1, 2]),
        (["--contains-token", "3"], [3]),
        (["--contains_token=3", "--contains-token=4"], []),
        (["--lacks-token=0", "--lacks_token=5"], [1, 2, 3, 4]),
        (["--expression", "len(tokens) > 3", "--trust-code"], [3, 4, 5]),
        (["--expression", " i % 2 == 0 and np.sum(tokens) > 0", "--trust_code", "--max-length=4"], [2]),
    ],
)
def test_rules_of_filter(cli: Cli, rules: list[str], kept: list[int]) -> None:
    printed = cli("filter", "lengths.pbin", "out.pbin", *rules)
    assert numbers("out.pbin") == kept
    n_documents = "1 document" if len(kept) == 1 else f"{len(kept)} documents"
    message = f"{n_documents}, {sum(kept) + len(kept)} tokens, {Path('out.pbin').stat().st_size} bytes"
    assert printed == (f"out.pbin: {message}, {6 - len(kept)} documents excluded\n", "")


def test_an_expression_needs_trust(cli: Cli) -> None:
    words = ["filter", "lengths.pbin", "out.pbin", "--expression", "open('touched', 'w')"]
    assert "--expression runs code with your permissions: add --trust-code" in cli(*words, code=2).err
    assert not Path("touched").exists()
    assert not Path("out.pbin").exists()


FACTS = {
    "path": "out.pbin",
    "left_out": 0,
    "n_empty_dropped": 0,
    "written": True,
    "kept_existing": False,
    "dry_run": False,
}


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("merge 0.pbin 1.pbin out.pbin", {"documents": 20, "tokens": 20, "sources": 2}),
        ("shuffle 0.pbin out.pbin --seed=1", {"documents": 10, "tokens": 10, "sources": 1}),
        ("chunk 0.pbin -o out.pbin --chunk-id=0 --num-chunks=2 --seed=1", {"documents": 5, "tokens": 5, "sources": 1}),
        ("filter_packed_data lengths.pbin out.pbin --min-length=3", {"documents": 4, "tokens": 18, "left_out": 2}),
    ],
)
def test_dry_run_json_and_existing_outputs(words: str, facts: dict[str, int], cli: Cli) -> None:
    call = words.split()
    planned, text = cli.json(*call, "--dry-run"), cli(*call, "--dry-run").out
    assert not Path("out.pbin").exists()
    done = cli.json(*call)
    assert done == {"sources": 1} | FACTS | facts | {"bytes": Path("out.pbin").stat().st_size}
    assert planned == done | {"written": False, "dry_run": True}
    assert "exists. Pass --force to overwrite it." in cli(*call, code=1).err
    assert cli(*call, "--file_existence_policy", "skip").out == "out.pbin: exists, kept\n"
    assert text == f"would write {cli(*call, '--force').out}"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["merge", "0.pbin", "cut.pbin", "out"], 1, "fastpack: error: cut.pbin: at byte 0"),
        (["merge", "none", "out"], 1, "fastpack: error: none does not exist\n"),
        (["shuffle", "none", "out"], 1, "none"),
        (["shuffle", "none.pbin", "out"], 1, "none.pbin"),
        (["shuffle", "none.jsonl", "out"], 1, "none.jsonl"),
        (["shuffle", "0.pbin", "0.pbin", "--force"], 1, "must be different"),
        (["chunk", "0.pbin", "-o", "out", "--chunk-id=11", "--num-chunks=12"], 1, "Chunk 11 has no samples"),
        (["chunk", "0.pbin", "-o", "out", "--chunk-id=2", "--num-chunks=2"], 2, "there is no such chunk"),
        (
            ["filter", "lengths.pbin", "out", "--trust-code", "--expression", "1 // (3 - i) > 5"],
            1,
            "--expression, document 3: ZeroDivisionError",
        ),
        *(
            (["filter", "0.pbin", "out", "--trust-code", "--expression", text], 2, "is not a Python expression")
            for text in ("len(tokens) >", "a = 1", "", "\0")
        ),
        (["filter", "0.pbin", "out"], 2, "no rule: pass at least one"),
        (["filter", "0.pbin", "out", "--min-length", "many"], 2, "many"),
        (["merge"], 2, "merge"),
        (["merge", "one"], 2, "merge"),
        (["merge", "a", "b", "--compat", "energon"], 2, "energon"),
        (["merge", "a", "b", "--token-size", "3"], 2, "3"),
        (["shuffle"], 2, "fastpack: error: "),
        (["shuffle", "a"], 2, "fastpack: error: "),
        (["shuffle", "--input-data-path", "a"], 2, "fastpack: error: "),
        (["shuffle", "a", "b", "--input-data-path", "c"], 2, "fastpack: error: "),
        (["shuffle", "a", "b", "--batch-size=0"], 2, "fastpack: error: "),
        (["chunk", "a.pbin", "-o", "out"], 2, "--chunk-id"),
        *(
            (["chunk", *sources, "-o", "out", "--chunk-id=0", "--num-chunks=1"], 2, "pass either SRC...")
            for sources in (
                [],
                ["--input-file-list-path", "list"],
                ["a.pbin", "--input-data-root-path", "."],
                ["a.pbin", "--input-file-list-path", "list", "--input-data-root-path", "."],
            )
        ),
    ],
)
def test_errors(words: list[str], code: int, message: str, cli: Cli) -> None:
    Path("cut.pbin").write_bytes(Path("1.pbin").read_bytes()[:20])
    out, err = cli(*words, code=code)
    assert out == ""
    assert message in err
    assert err.count("\n") == 1 or code == 2
    assert not Path("out").exists()


def test_compat_and_token_size_of_merge(folder: Path, cli: Cli) -> None:
    Path("packed").mkdir()
    for number in range(2):
        with PackedWriter(f"packed/{number}.pbin", 2) as writer:
            writer.append_many(range(30), [10, 20])
    cli("merge", "packed", "out.pbin", "--compat", "modalities-0.5")
    with PackedFile("out.pbin") as file:
        assert file.index[:, 0].tolist() == [0, 20, 48, 68]
    assert cli("merge", "packed", "out.pbin", "--force", "--token_size", "4", "-q").out == ""
    with PackedFile("out.pbin") as file:
        assert file.token_size_in_bytes == 4
        assert file.index[:, 0].tolist() == [0, 40, 120, 160]
    assert cli("merge", "0.pbin", "0.pbin", "all").err == f"merged more than once: {folder}/0.pbin\n"


def test_the_kind_of_an_unknown_suffix_is_read_from_the_file(cli: Cli) -> None:
    for kind in ("pbin", "jsonl"):
        source = Path(f"0.{kind}").rename(f"0.{kind}.data")
        cli("shuffle", source, f"out.{kind}", "--seed", "-3")
        assert numbers(f"out.{kind}") == shuffled(-3)
    Path("1.jsonl").rename("1.JSON")
    cli("shuffle", "1.JSON", "out.JSON", "--seed", "1")


def test_a_last_line_without_newline(cli: Cli) -> None:
    Path("a.jsonl").write_bytes(b"1\n2\n3")
    assert "a.jsonl: the last line has no newline; one was added" in cli("shuffle", "a.jsonl", "right", "--seed=1").err
    cli("shuffle", "a.jsonl", "joined", "--seed=1", "--compat", "modalities-0.5")
    assert sorted(Path("right").read_bytes().split()) == [b"1", b"2", b"3"]
    assert len(Path("joined").read_bytes().split()) == 2
