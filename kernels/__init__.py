"""Loops over typed arrays, each with twins of one meaning: `*_np` is the specification, `*_nb` Numba, `*_cy` Cython.

Which twin runs: `use(name)` or the environment variable FASTPACK_KERNELS choose one and fail loudly when it is
missing. Otherwise Cython, which needs no warm-up, until `warm()` is called, and Numba from then on (importing numba
costs 0.3 s and 140 MiB, so command lines and spawned workers stay on Cython). A choice loads all kernels at once, so
that what is missing shows; otherwise each topic is loaded when it is first called (0.7 ms instead of 10 for all).

Kernels allocate nothing and check little; callers own the arrays. Call them as attributes (`kernels.doc_ids(...)`),
never by `from ... import`, so that a later `use()` takes effect.
"""

from __future__ import annotations

if __name__ != "fastpack.kernels":
    raise ImportError("this folder is the package fastpack.kernels; install fastpack and import it by that name")

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastpack.kernels.batches_np import fill_documents, fill_packed, fill_plain, fill_tokens
    from fastpack.kernels.codecs.btree_np import encode_cells, pack_cells
    from fastpack.kernels.codecs.json_np import validate_json_rows
    from fastpack.kernels.codecs.leaves_np import read_leaves
    from fastpack.kernels.codecs.pickled_index_decoder_np import decode_index
    from fastpack.kernels.codecs.pickled_index_encoder_np import encode_rows
    from fastpack.kernels.codecs.tar_np import walk_tar
    from fastpack.kernels.documents_np import cu_seqlens, doc_ids, mask_labels
    from fastpack.kernels.lines_np import count_newlines, index_lines
    from fastpack.kernels.locate_np import locate, locate_many, locate_windows
    from fastpack.kernels.megatron_blocks_np import block_starts
    from fastpack.kernels.order_np import feistel, seed_generator, shuffle, stdlib_shuffle
    from fastpack.kernels.sort_bytes_np import first_unsorted, sort_texts, sort_within
    from fastpack.kernels.spans_np import copy_spans
    from fastpack.kernels.token_statistics_np import count_tokens, scan_tokens, used_bytes

__all__ = [
    "BACKENDS",
    "TABLE",
    "backend",
    "block_starts",
    "copy_spans",
    "count_newlines",
    "count_tokens",
    "cu_seqlens",
    "decode_index",
    "doc_ids",
    "encode_cells",
    "encode_rows",
    "feistel",
    "fill_documents",
    "fill_packed",
    "fill_plain",
    "fill_tokens",
    "first_unsorted",
    "index_lines",
    "locate",
    "locate_many",
    "locate_windows",
    "mask_labels",
    "pack_cells",
    "read_leaves",
    "scan_tokens",
    "seed_generator",
    "shuffle",
    "sort_texts",
    "sort_within",
    "stdlib_shuffle",
    "use",
    "used_bytes",
    "validate_json_rows",
    "walk_tar",
    "warm",
]

BACKENDS = ("numba", "cython", "numpy")


def _twins(topic: str, numba: bool = True) -> dict[str, str]:
    """The modules of a topic by backend; a byte-format decoder has no Numba twin and runs Cython there."""
    return {"numba": f"{topic}_nb" if numba else f"{topic}_cy", "cython": f"{topic}_cy", "numpy": f"{topic}_np"}


TABLE: dict[str, dict[str, str]] = {
    "count_newlines": _twins("lines"),
    "index_lines": _twins("lines"),
    "cu_seqlens": _twins("documents"),
    "doc_ids": _twins("documents"),
    "mask_labels": _twins("documents"),
    "locate": _twins("locate"),
    "locate_many": _twins("locate"),
    "locate_windows": _twins("locate"),
    "fill_documents": _twins("batches"),
    "fill_packed": _twins("batches"),
    "fill_plain": _twins("batches"),
    "fill_tokens": _twins("batches"),
    "count_tokens": _twins("token_statistics"),
    "scan_tokens": _twins("token_statistics"),
    "used_bytes": _twins("token_statistics"),
    "copy_spans": _twins("spans"),
    "block_starts": _twins("megatron_blocks"),
    "seed_generator": _twins("order"),
    "shuffle": _twins("order"),
    "stdlib_shuffle": _twins("order"),
    "feistel": _twins("order"),
    "decode_index": _twins("codecs.pickled_index_decoder", numba=False),
    "encode_rows": _twins("codecs.pickled_index_encoder", numba=False),
    "validate_json_rows": _twins("codecs.json", numba=False),
    "walk_tar": _twins("codecs.tar", numba=False),
    "encode_cells": _twins("codecs.btree", numba=False),
    "pack_cells": _twins("codecs.btree", numba=False),
    "read_leaves": _twins("codecs.leaves", numba=False),
    "first_unsorted": _twins("sort_bytes", numba=False),
    "sort_texts": _twins("sort_bytes", numba=False),
    "sort_within": _twins("sort_bytes", numba=False),
}

_chosen: str | None = None  # by use() or FASTPACK_KERNELS; warm() does not overrule it
_backend: str | None = None


def use(name: str) -> None:
    """Run every kernel on `name` ("numba", "cython" or "numpy") from now on, in this process.

    Raises ValueError for another name and ImportError when that backend is not there; then nothing changes.
    """
    global _chosen
    _bind(name)
    _chosen = name


def backend() -> str:
    """The name of the backend that runs now: "numba", "cython" or "numpy"."""
    global _chosen, _backend
    if _backend is None:
        _chosen = os.environ.get("FASTPACK_KERNELS") or None
        if _chosen:
            _bind(_chosen)
        else:
            _backend = "cython"  # __getattr__ loads what is called
    assert _backend is not None
    return _backend


def warm(token_dtypes: Sequence[str] = ("uint16", "uint32"), out_dtypes: Sequence[str] = ("int64",)) -> str:
    """Compile the Numba twins for these dtypes and switch to them; return the backend that runs now.

    Call it in the main process before workers fork: they inherit the compiled code. Other dtypes compile at their first
    call (half a second each, cached on disk). An explicit choice stands (and is warmed), and where Numba is not
    installed the Cython twins go on serving.
    """
    backend()
    if _chosen is None and _numba_is_installed():
        _bind("numba")
    if _backend == "numba":
        for topic in sorted({modules["numba"] for modules in TABLE.values() if modules["numba"].endswith("_nb")}):
            importlib.import_module(f"{__name__}.{topic}").compile_all(token_dtypes, out_dtypes)
    return backend()


def _numba_is_installed() -> bool:
    try:
        importlib.import_module("numba")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise  # installed but broken: that is not to be passed over
        return False
    return True


def _bind(name: str) -> None:
    global _backend
    if name not in BACKENDS:
        raise ValueError(f"unknown kernel backend {name!r}: choose one of {', '.join(BACKENDS)}")
    bound = {kernel: getattr(_load(modules[name], name), kernel) for kernel, modules in TABLE.items()}
    globals().update(bound)  # from now on a plain attribute: 5 to 25 ns over a direct call
    _backend = name


def _load(module: str, name: str) -> Any:
    try:
        return importlib.import_module(f"{__name__}.{module}")
    except ImportError as error:
        raise ImportError(f"kernel backend {name!r} is not available ({error}); {_remedy(module)}") from error


def _remedy(module: str) -> str:
    """What to do where a module of kernels cannot be imported."""
    if module.endswith("_nb"):
        return "install numba, or choose FASTPACK_KERNELS=cython"
    folder = os.path.dirname(os.path.realpath(__file__))
    if os.path.exists(os.path.join(folder, "lines_cy.pyx")):  # only a checkout has the sources
        return (
            f"Python imported fastpack from the checkout {os.path.dirname(folder)}, where the kernels are not built "
            "for this Python: run `pip install -e .` there, or start Python in another folder to use an "
            "installed package"
        )
    return "the compiled extension is missing: reinstall fastpack, or choose FASTPACK_KERNELS=numpy (slow)"


def __getattr__(name: str) -> Any:
    if name in TABLE:
        running = backend()
        kernel = getattr(_load(TABLE[name][running], running), name)
        return globals().setdefault(name, kernel)  # where another thread's `use` has bound one meanwhile, it stays
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
