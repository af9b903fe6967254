"""A Sphinx extension that writes the pages of the API reference from the public names of the package.

Each namespace has a page with a table of its names, and each object has a page of its own. An object that several
namespaces list is documented once, under the first of them. The lists come from the package at build time.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.ext.autodoc.mock import mock

NAMESPACES = (
    "fastpack",
    "fastpack.torch",
    "fastpack.webdataset",
    "fastpack.tatm",
    "fastpack.modalities",
    "fastpack.energon",
    "fastpack.kernels",
)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", write_pages)
    return {"parallel_read_safe": True}


def write_pages(app: Sphinx, config: Config) -> None:
    """Write the pages to the folder `api`; remove the pages of names that no longer exist."""
    folder = Path(app.srcdir, "api")
    folder.mkdir(exist_ok=True)
    with mock(config.autodoc_mock_imports):
        pages = all_pages()
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for file_name, text in pages.items():
        path = folder / file_name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # unchanged pages are not built again
            path.write_text(text, encoding="utf-8")


def all_pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    pages = {"index.md": index_page()}
    homes: dict[int, str] = {}  # id of an object -> the qualified name under which it is documented
    for namespace in NAMESPACES:
        objects = public_objects(namespace)
        for name, value in objects.items():
            home = homes.setdefault(id(value), f"{namespace}.{name}")
            if home == f"{namespace}.{name}":
                pages[f"{home}.rst"] = object_page(home, value)
        pages[f"{namespace}.md"] = namespace_page(
            namespace, {name: (homes[id(value)], value) for name, value in objects.items()}
        )
    return pages


def public_objects(namespace: str) -> dict[str, Any]:
    """Return the public objects of a module by name, except submodules, in alphabetical order."""
    module = importlib.import_module(namespace)
    names = dir(module) if namespace == "fastpack" else module.__all__  # `fastpack.__all__` lacks `inspect`
    found = {name: getattr(module, name) for name in sorted(names, key=str.lower) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def index_page() -> str:
    return "\n".join(["# API reference", "", ":::{toctree}", ":maxdepth: 1", *NAMESPACES, ":::", ""])


def namespace_page(namespace: str, objects: dict[str, tuple[str, Any]]) -> str:
    """Return the page of a namespace; `objects` maps each name to its qualified name and value."""
    lines = [f"# {namespace}", "", summary(importlib.import_module(namespace)), "", "| name | |", "|---|---|"]
    lines += [f"| [`{name}`]({home}.rst) | {summary(value)} |" for name, (home, value) in objects.items()]
    own = [f"{name} <{home}>" for name, (home, _) in objects.items() if home == f"{namespace}.{name}"]
    return "\n".join([*lines, "", ":::{toctree}", ":hidden:", *own, ":::", ""])


def summary(value: Any) -> str:
    """Return the first paragraph of a docstring as a Markdown table cell; "" for constants."""
    if not (callable(value) or isinstance(value, ModuleType)):
        return ""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n", 1)[0].split())
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace("[", "\\[")


def object_page(name: str, value: Any) -> str:
    if inspect.isclass(value):
        directive = "autoexception" if issubclass(value, BaseException) else "autoclass"
    else:
        directive = "autofunction" if callable(value) else "py:data"
    title = name.rpartition(".")[2]
    return "\n".join([title, "=" * len(title), "", f".. {directive}:: {name}", ""])
