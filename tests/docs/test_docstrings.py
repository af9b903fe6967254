"""Docstrings of public names follow numpydoc, and their examples run as shown."""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import fastpack
from fastpack import kernels

NAMESPACES = ["fastpack", "fastpack.webdataset", "fastpack.tatm", "fastpack.modalities", "fastpack.energon"]
NAMESPACES += ["fastpack.torch"] if find_spec("torch") else []
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PROPERTIES = (property, functools.cached_property)
METHODS = (FunctionType, classmethod, staticmethod)


def public_objects() -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for namespace in NAMESPACES:
        module = importlib.import_module(namespace)
        for name in sorted(module.__all__):
            found = getattr(module, name)
            if id(found) not in seen and (inspect.isclass(found) or inspect.isroutine(found)):
                seen.add(id(found))
                yield f"{namespace}.{name}", found
    for function in (kernels.use, kernels.backend, kernels.warm):
        yield f"fastpack.kernels.{function.__name__}", function


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


def sections(text: str) -> dict[str, list[str]]:
    """Return a docstring's lines by section; the text before the first section is the section ""."""
    lines = text.splitlines()
    current: list[str] = []
    found = {"": current}
    for line, underline in zip(lines, [*lines[1:], ""], strict=True):
        if line and underline == "-" * len(line):
            current = found[line] = []
        elif line.strip("-"):
            current.append(line)
    return found


def described(text: str, section: str) -> set[str]:
    """Return the names that a section describes. An entry is `name`, `name : type` or `name, name`, not indented."""
    entries = [line.split(" : ")[0] for line in sections(text).get(section, []) if not line[0].isspace()]
    return {name.strip() for entry in entries for name in entry.split(",")}


def parameters(function: Any) -> set[str]:
    """Return the names of the parameters as numpydoc writes them: `*args` with its star; no private ones (`_name`)."""
    empty = inspect.Parameter.empty
    found = inspect.signature(function).parameters.values()
    names = {str(parameter.replace(annotation=empty, default=empty)) for parameter in found} - {"self", "cls"}
    return {name for name in names if not name.startswith("_") or name.endswith("__")}


def parameter_faults(found: set[str], expected: set[str]) -> Iterator[str]:
    if found != expected:
        yield f"Parameters: missing {sorted(expected - found)}, unknown {sorted(found - expected)}"


def entry_faults(text: str) -> Iterator[str]:
    for section in {*sections(text)} & {"Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns"}:
        lines = sections(text)[section]
        for line, following in zip(lines, [*lines[1:], "."], strict=True):
            if not (line[0].isspace() or following[0].isspace()):
                yield f"{section}: {line!r} has no indented description"


def summary_faults(text: str) -> Iterator[str]:
    if not text.partition("\n")[0].endswith("."):
        yield "the first line is not a summary that ends with a period"


def function_faults(function: Any) -> Iterator[str]:
    text = inspect.getdoc(function) or ""
    yield from (*summary_faults(text), *entry_faults(text))
    yield from parameter_faults(described(text, "Parameters"), parameters(function))
    returns = inspect.signature(function).return_annotation not in (None, "None")
    if returns and {"Returns", "Yields"}.isdisjoint(sections(text)):
        yield "no section Returns or Yields"


def class_faults(cls: type) -> Iterator[str]:
    """Yield the faults of a class; the fields of a dataclass may be described by a base class, or as Attributes."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("fastpack.")]
    texts = [inspect.cleandoc(base.__doc__ or "") for base in bases]
    yield from (*summary_faults(texts[0]), *entry_faults(texts[0]))
    if "__init__" in vars(cls) or ("__new__" in vars(cls) and not issubclass(cls, Enum)):
        own, expected = described(texts[0], "Parameters"), parameters(cls)
        inherited = {name for text in texts for name in described(text, "Parameters") | described(text, "Attributes")}
        yield from parameter_faults(own | (inherited & expected), expected)


def example_faults(text: str) -> Iterator[str]:
    if not any(line.startswith(">>>") for line in sections(text).get("Examples", [])):
        yield "no examples"


def public_members() -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that public classes and their bases within fastpack define."""
    classes = [found for _, found in public_objects() if inspect.isclass(found)]
    bases = {base for cls in classes for base in cls.__mro__ if base.__module__.startswith("fastpack.")}
    for base in bases:
        for name, member in vars(base).items():
            overrides = any(hasattr(ancestor, name) for ancestor in base.__mro__[1:])
            inherits = overrides and not member.__doc__
            if not (name.startswith("_") or inherits) and isinstance(member, (*PROPERTIES, *METHODS)):
                yield f"{base.__module__}.{base.__name__}.{name}", member


def docstring_faults() -> dict[str, list[str]]:
    """Return the faults of every public name's docstring."""
    found: dict[str, list[str]] = {}
    for name, item in public_objects():
        found[name] = list(class_faults(item) if inspect.isclass(item) else function_faults(item))
        found[name] += example_faults(inspect.getdoc(item) or "")
    for name, member in public_members():
        is_property = isinstance(member, PROPERTIES)
        function = getattr(member, "__func__", member)
        found[name] = list(summary_faults(inspect.getdoc(member) or "") if is_property else function_faults(function))
    return found


def test_docstrings_of_public_names_follow_numpydoc() -> None:
    found = docstring_faults()
    faults = {name: found[name] for name in found if found[name]}
    assert len(found) > 200
    assert faults == {}
