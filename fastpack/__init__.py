"""fastpack turns raw text and media into LLM training data and feeds it to the training loop at the speed of memory.

Public names are listed in `__init__.pyi` and imported on first use: `import fastpack` loads neither numpy nor numba.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from fastpack.version import __version__ as __version__

_import_name, _, _NAMES = lazy_loader.attach_stub(__name__, __file__)
# Without `inspect`: `from fastpack import *` must not hide Python's module.
__all__ = sorted({*_NAMES} - {"__version__", "inspect"})  # pyright: ignore[reportUnsupportedDunderAll]
_NAMESPACES = ("modalities", "webdataset", "tatm", "energon")  # their names were flat names in 0.1


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _import_name(name)
    found = None if name.startswith("_") else _find_moved(name)
    if found is None:
        raise AttributeError(f"module 'fastpack' has no attribute {name!r}{_suggestion(name)}")
    return found


def __dir__() -> list[str]:
    return list(_NAMES)


def _find_moved(name: str) -> Any:
    """Return a name that was flat in 0.1; None if there is no such name."""
    if name == "index_webdataset_jsonl":
        from fastpack.webdataset.preparation.crude_jsonl_index import index_webdataset_jsonl

        return index_webdataset_jsonl
    namespaces = [_import_name(namespace) for namespace in _NAMESPACES]
    return next((getattr(namespace, name) for namespace in namespaces if name in namespace.__all__), None)


def _suggestion(name: str) -> str:
    import difflib

    similar = difflib.get_close_matches(name, _NAMES, 1)
    return f"; did you mean {similar[0]!r}?" if similar else ""
