"""Limits of the code base: sizes, module names, and what a cold start loads. import-linter checks the layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastpack
from fastpack import kernels

PACKAGE = Path(fastpack.__file__).parent
MAX_LINES = 400  # per module, counting everything


def sources() -> list[Path]:
    folders = [PACKAGE, Path(kernels.__file__).parent]
    found = {path.resolve(): path for folder in folders for path in folder.rglob("*.py")}
    assert len(found) > 30
    return sorted(found.values())


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.col_offset) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"fastpack.{alias.name}" for alias in node.names] if node.module == "fastpack" else [node.module]
            yield from ((name, node.col_offset) for name in names)


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_command_line_modules_import_only_the_standard_library_when_loaded(path: Path) -> None:
    if path.parent.name != "cli" and path.name != "__init__.py":
        return
    loaded = {name.split(".")[0] for name, column in imports(path) if column == 0}
    assert loaded <= set(sys.stdlib_module_names) | {"fastpack", "__future__", "lazy_loader"}


def test_a_module_name_occurs_at_most_twice() -> None:
    names = Counter(path.stem for path in sources() if path.stem != "__init__")
    assert {name: n for name, n in names.items() if n > 2} == {}


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    n_lines = len(text.splitlines())
    assert n_lines <= MAX_LINES
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False) or ""
            n_lines = (node.end_lineno or 0) - node.lineno + 1 - len(docstring.splitlines())
            assert n_lines <= 60, f"{path.name}:{node.lineno} {node.name} has {n_lines} lines"


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import fastpack, fastpack.kernels; dir(fastpack)",
        "from fastpack.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from fastpack.cli import main\ntry: main(['data', 'pack_encoded_data', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_cold_start_loads_neither_numpy_nor_numba(code: str) -> None:
    assert not {"numpy", "numba", "orjson", "yaml", "tokenizers", "tqdm"} & modules_after(code)


# What a command on a tiny file does not need: 2 to 300 ms each.
HEAVY = {"numba", "llvmlite", "yaml", "awkward", "torch", "tokenizers", "gigatoken", "pyarrow", "obstore", "PIL", "jq"}
HEAVY |= {"numpy.random", "numpy.ma", "logging", "concurrent.futures", "multiprocessing", "sqlite3", "asyncio"}


@pytest.mark.parametrize("command", ["index", "info", "verify"])
def test_commands_on_a_tiny_file_load_no_heavy_module(command: str, tmp_path: Path) -> None:
    lines, packed = tmp_path / "a.jsonl", tmp_path / "a.pbin"
    lines.write_text('{"text": "a"}\n')
    fastpack.pack(lines, packed, tokenizer="bytes", index_path=tmp_path / "of_pack.idx")
    words = [command, "-q", str(lines if command == "index" else packed)]
    loaded = modules_after(f"from fastpack.cli import main; main({words!r})")
    assert "fastpack.kernels.lines_cy" in loaded or command != "index"
    assert not HEAVY & loaded


def test_packing_loads_yaml_only_for_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    words = ["pack", str(tmp_path / "a.jsonl"), "--tokenizer", "bytes", "-q"]
    loaded = modules_after(f"from fastpack.cli import main; main({words!r})")
    assert not {"numba", "yaml", "awkward", "torch", "jq", "tokenizers", "pyarrow"} & loaded


def test_every_public_name_exists_and_is_documented() -> None:
    for name in fastpack.__all__:
        assert getattr(fastpack, name).__doc__, f"fastpack.{name} has no docstring"
    assert set(fastpack.__all__) <= set(dir(fastpack))
    assert fastpack.inspect is not None
    assert "inspect" not in fastpack.__all__  # it would shadow the standard module after `from fastpack import *`
    for namespace in (fastpack.energon, fastpack.modalities, fastpack.tatm, fastpack.webdataset):
        for name in namespace.__all__:
            assert getattr(namespace, name).__doc__
            assert getattr(fastpack, name) is getattr(namespace, name)


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="no attribute 'MixtreDataset'; did you mean 'MixtureDataset'"):
        _ = fastpack.MixtreDataset  # type: ignore[attr-defined]
    assert not hasattr(fastpack, "__wrapped__")
