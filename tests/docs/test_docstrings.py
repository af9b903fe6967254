"""The examples in the docstrings of public names run as shown."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fastpack

NAMESPACES = ("fastpack", "fastpack.webdataset", "fastpack.tatm", "fastpack.modalities", "fastpack.energon")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public_objects() -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for namespace in NAMESPACES:
        module = importlib.import_module(namespace)
        for name in sorted(module.__all__):
            found = getattr(module, name)
            if id(found) not in seen and (inspect.isclass(found) or inspect.isroutine(found)):
                seen.add(id(found))
                yield f"{namespace}.{name}", found


def doctests() -> Iterator[Any]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name, found in public_objects():
        module = importlib.import_module(found.__module__)
        for test in finder.find(found, name, module, globs={"fastpack": fastpack}):
            if test.examples:
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("test", list(doctests()))
def test_the_examples_of_a_docstring_run(
    test: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=output.append)
    assert result.failed == 0, "".join(output)


def test_examples_are_found() -> None:
    assert len(list(doctests())) >= 10
