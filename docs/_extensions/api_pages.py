"""A Sphinx extension that writes the pages of the API reference from the public names of the package.

`docs/api/index.md` has one table for each namespace, and every public name has a page of its own. The lists come from
`__all__` of each namespace at build time.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

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
    """Write `api/index.md` and one page for each public name; remove the pages of names that no longer exist."""
    folder = Path(app.srcdir, "api")
    folder.mkdir(exist_ok=True)
    pages = {}
    with mock(config.autodoc_mock_imports):
        found = {namespace: names for namespace in NAMESPACES if (names := public_names(namespace))}
        pages["index.md"] = index_page(found)
        for namespace, names in found.items():
            pages[f"{namespace}.md"] = namespace_page(namespace, names)
            pages |= {f"{namespace}.{name}.rst": object_page(namespace, name) for name in names}
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for file_name, text in pages.items():
        path = folder / file_name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # unchanged pages are not built again
            path.write_text(text, encoding="utf-8")


def public_names(namespace: str) -> list[str]:
    """Return the names in `__all__` of a module, except submodules, in alphabetical order."""
    if importlib.util.find_spec(namespace) is None:
        return []
    module = importlib.import_module(namespace)
    names = [name for name in getattr(module, "__all__", ()) if not isinstance(getattr(module, name), ModuleType)]
    return sorted(names, key=str.lower)


def index_page(namespaces: Iterable[str]) -> str:
    return "\n".join(["# API reference", "", ":::{toctree}", ":maxdepth: 1", *namespaces, ":::", ""])


def namespace_page(namespace: str, names: list[str]) -> str:
    module = importlib.import_module(namespace)
    summary = (inspect.getdoc(module) or "").split("\n\n", 1)[0]
    documented = [name for name in names if callable(getattr(module, name))]
    lines = [f"# {namespace}", "", summary, ""]
    lines += ["```{eval-rst}", ".. autosummary::", "   :nosignatures:", ""]
    lines += [*(f"   {namespace}.{name}" for name in documented), "```", ""]
    lines += [":::{toctree}", ":hidden:", *(f"{name} <{namespace}.{name}>" for name in names), ":::", ""]
    return "\n".join(lines)


def object_page(namespace: str, name: str) -> str:
    value = getattr(importlib.import_module(namespace), name)
    if inspect.isclass(value):
        directive = "autoexception" if issubclass(value, BaseException) else "autoclass"
    else:
        directive = "autofunction" if callable(value) else "py:data"
    return "\n".join([name, "=" * len(name), "", f".. {directive}:: {namespace}.{name}", ""])
