"""Every code block of docs/*.md runs; tests/support/doc_pages.py describes the comments that control this."""

from __future__ import annotations

import builtins
import symtable
from pathlib import Path

import doc_pages
import pytest
from command_line import kept_kernels

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
# The number of blocks with <!-- not run: ... --> on each page
NOT_RUN = {"benchmarks.md": 2, "from-energon.md": 1, "kernels.md": 1, "performance.md": 1}


def parameters() -> list[object]:
    slow = [pytest.mark.slow]
    notes = {page: doc_pages.page_notes(page.read_text()) for page in PAGES}
    return [pytest.param(page, id=page.name, marks=slow if "slow" in notes[page] else []) for page in PAGES]


@pytest.mark.parametrize("page", parameters())
def test_its_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # more threads are slower for the small arrays of these pages
    with kept_kernels():
        left_out = doc_pages.run_page(page, tmp_path)
    if left_out:
        pytest.skip("all blocks ran except " + "; ".join(left_out))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_use_only_names_of_the_page(page: Path) -> None:
    """This includes blocks whose requirements are not installed."""
    blocks = [block for block in doc_pages.blocks_of(page.read_text()) if block.language == "python"]
    programs = [block.code for block in blocks if (block.file_name or "").endswith(".py")]
    for code in ["".join(block.code for block in blocks if not block.file_name), *programs]:
        assert unbound_names(symtable.symtable(code, page.name, "exec")) == set()


def unbound_names(module: symtable.SymbolTable) -> set[str]:
    """Return the names that the code of a module reads but never binds."""
    bound = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    read, tables = set(), [module]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        symbols = [symbol for symbol in table.get_symbols() if symbol.is_referenced()]
        read |= {symbol.get_name() for symbol in symbols if table is module or symbol.is_global()}
    return read - bound - set(dir(builtins))


def test_few_blocks_do_not_run_and_each_has_a_reason() -> None:
    counts = {
        page.name: [block.notes["not run"] for block in blocks if "not run" in block.notes]
        for page, blocks in ((page, doc_pages.blocks_of(page.read_text())) for page in PAGES)
    }
    assert {name: len(reasons) for name, reasons in counts.items() if reasons} == NOT_RUN
    assert sum(NOT_RUN.values()) <= 8
    assert all(len(reason) >= 10 for reasons in counts.values() for reason in reasons)


def run(text: str, folder: Path) -> list[str]:
    (folder / "page.md").write_text(text)
    (folder / "empty").mkdir()
    return doc_pages.run_page(folder / "page.md", folder / "empty")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nassert 1 == 2\n```", "^$"),
        ("```console\n$ echo a\nb\n```", "page.md:1: echo a printed\na"),
        ("```console\n$ exit 3\n```", "bash ended early"),
        ("```console\n$ (exit 3)\n```", r"\(exit 3\) ended with 3"),
        ("```console\n$ echo a; echo b\na\n```", "printed\na\nb"),
        ("<!-- given:\nPath('other.txt').touch()\n-->", "page.md:1: a comment creates other.txt"),
        ("```python\nprint(1)\n```\n\n<!-- output -->\n```text\n2\n```", "printed was\n1"),
    ],
)
def test_a_wrong_page_fails(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        run(text + "\n", tmp_path)
