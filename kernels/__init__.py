"""Kernels: loops over typed arrays, each implemented in NumPy (`*_np`), Numba (`*_nb`) and Cython (`*_cy`).

The NumPy implementation is the specification. `use(name)` or the environment variable FASTPACK_KERNELS select a backend
and fail if it is missing. Otherwise Cython runs, which needs no warm-up, until `warm()` is called, and then Numba.
Importing numba costs 0.3 s and 140 MiB, so command lines and spawned workers stay on Cython. Selecting a backend loads
all kernels, so that a missing one is noticed; otherwise each topic is loaded when it is first called (0.7 ms instead of
10 for all).

Kernels do not allocate, and check little; callers own the arrays. Call them as attributes (`kernels.doc_ids(...)`), not
through `from ... import`, so that a later `use()` takes effect.
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
    from fastpack.kernels.bins_np import best_fit, cut_stream, first_fit, group_by_bin, sort_lengths
    from fastpack.kernels.blends_np import blend_datasets
    from fastpack.kernels.codecs.btree_np import encode_cells, pack_cells
    from fastpack.kernels.codecs.json_np import validate_json_rows
    from fastpack.kernels.codecs.leaves_np import read_leaves
    from fastpack.kernels.codecs.pickled_index_decoder_np import decode_index
    from fastpack.kernels.codecs.pickled_index_encoder_np import encode_rows
    from fastpack.kernels.codecs.tar_np import walk_tar
    from fastpack.kernels.document_hashes_np import add_hashes
    from fastpack.kernels.documents_np import cu_seqlens, doc_ids, mask_labels
    from fastpack.kernels.lines_np import count_newlines, index_lines
    from fastpack.kernels.locate_np import locate, locate_many, locate_windows
    from fastpack.kernels.megatron_blocks_np import block_starts
    from fastpack.kernels.order_np import (
        draw_samples,
        feistel,
        legacy_shuffle,
        seed_generator,
        shuffle,
        stdlib_shuffle,
    )
    from fastpack.kernels.plan_rows_np import read_rows
    from fastpack.kernels.row_spans_np import document_ends, fill_spans
    from fastpack.kernels.sample_parts_np import part_blocks, sample_parts
    from fastpack.kernels.segments_np import copy_segments, fill_segments, locate_segments, place_segments
    from fastpack.kernels.shares_np import share_counts, share_sources, share_tree
    from fastpack.kernels.sort_bytes_np import first_unsorted, sort_texts, sort_within
    from fastpack.kernels.spans_np import copy_spans
    from fastpack.kernels.stream_rows_np import stream_segments
    from fastpack.kernels.token_masks_np import mask_tokens
    from fastpack.kernels.token_statistics_np import count_tokens, scan_tokens, used_bytes

__all__ = [
    "BACKENDS",
    "TABLE",
    "add_hashes",
    "backend",
    "best_fit",
    "blend_datasets",
    "block_starts",
    "copy_segments",
    "copy_spans",
    "count_newlines",
    "count_tokens",
    "cu_seqlens",
    "cut_stream",
    "decode_index",
    "doc_ids",
    "document_ends",
    "draw_samples",
    "encode_cells",
    "encode_rows",
    "feistel",
    "fill_documents",
    "fill_packed",
    "fill_plain",
    "fill_segments",
    "fill_spans",
    "fill_tokens",
    "first_fit",
    "first_unsorted",
    "group_by_bin",
    "index_lines",
    "legacy_shuffle",
    "locate",
    "locate_many",
    "locate_segments",
    "locate_windows",
    "mask_labels",
    "mask_tokens",
    "pack_cells",
    "part_blocks",
    "place_segments",
    "read_leaves",
    "read_rows",
    "sample_parts",
    "scan_tokens",
    "seed_generator",
    "share_counts",
    "share_sources",
    "share_tree",
    "shuffle",
    "sort_lengths",
    "sort_texts",
    "sort_within",
    "stdlib_shuffle",
    "stream_segments",
    "use",
    "used_bytes",
    "validate_json_rows",
    "walk_tar",
    "warm",
]

BACKENDS = ("numba", "cython", "numpy")


_TOPICS: dict[str, tuple[str, ...]] = {
    "lines": ("count_newlines", "index_lines"),
    "documents": ("cu_seqlens", "doc_ids", "mask_labels"),
    "locate": ("locate", "locate_many", "locate_windows"),
    "batches": ("fill_documents", "fill_packed", "fill_plain", "fill_tokens"),
    "plan_rows": ("read_rows",),
    "segments": ("copy_segments", "fill_segments", "locate_segments", "place_segments"),
    "row_spans": ("document_ends", "fill_spans"),
    "token_statistics": ("count_tokens", "scan_tokens", "used_bytes"),
    "spans": ("copy_spans",),
    "megatron_blocks": ("block_starts",),
    "bins": ("sort_lengths", "best_fit", "first_fit", "cut_stream", "group_by_bin"),
    "order": (
        "seed_generator",
        "shuffle",
        "stdlib_shuffle",
        "legacy_shuffle",
        "feistel",
        "draw_samples",
    ),
    "shares": ("share_counts", "share_sources", "share_tree"),
    "blends": ("blend_datasets",),
    "token_masks": ("mask_tokens",),
    "sample_parts": ("part_blocks", "sample_parts"),
    "codecs.pickled_index_decoder": ("decode_index",),
    "codecs.pickled_index_encoder": ("encode_rows",),
    "codecs.json": ("validate_json_rows",),
    "codecs.tar": ("walk_tar",),
    "codecs.btree": ("encode_cells", "pack_cells"),
    "codecs.leaves": ("read_leaves",),
    "sort_bytes": ("first_unsorted", "sort_texts", "sort_within"),
    "stream_rows": ("stream_segments",),
    "document_hashes": ("add_hashes",),
}


def _implementations(topic: str) -> dict[str, str]:
    """Return the modules of a topic by backend; a state machine has no Numba implementation and runs Cython there."""
    has_numba = not topic.startswith("codecs.") and topic != "sort_bytes"
    return {"numba": f"{topic}_{'nb' if has_numba else 'cy'}", "cython": f"{topic}_cy", "numpy": f"{topic}_np"}


TABLE = {kernel: _implementations(topic) for topic, kernels in _TOPICS.items() for kernel in kernels}

_chosen: str | None = None  # by use() or FASTPACK_KERNELS; warm() does not override it
_backend: str | None = None


def use(name: str) -> None:
    """Run every kernel on this backend from now on, in this process.

    Parameters
    ----------
    name
        ``"numba"``, ``"cython"`` or ``"numpy"``.

    Raises
    ------
    ValueError
        If the name is unknown.
    ImportError
        If the backend is not available; the current backend stays selected.

    Examples
    --------
    >>> from fastpack import kernels
    >>> before = kernels.backend()
    >>> kernels.use("numpy")
    >>> kernels.backend()
    'numpy'
    >>> kernels.use(before)
    """
    global _chosen
    _bind(name)
    _chosen = name


def backend() -> str:
    """Return the name of the current backend.

    Returns
    -------
    str
        ``"numba"``, ``"cython"`` or ``"numpy"``.

    Raises
    ------
    ValueError
        If FASTPACK_KERNELS names an unknown backend.
    ImportError
        If FASTPACK_KERNELS names a backend that is not available.

    Examples
    --------
    >>> from fastpack import kernels
    >>> kernels.backend() in kernels.BACKENDS
    True
    """
    global _chosen, _backend
    if _backend is None:
        _chosen = os.environ.get("FASTPACK_KERNELS") or None
        if _chosen:
            _bind(_chosen)
        else:
            _backend = "cython"  # __getattr__ loads topics on demand
    assert _backend is not None
    return _backend


def warm(token_dtypes: Sequence[str] = ("uint16", "uint32"), out_dtypes: Sequence[str] = ("int64",)) -> str:
    """Compile the Numba kernels for these dtypes and switch to them.

    Call it in the main process before workers fork: they inherit the compiled code. Other dtypes are compiled at their
    first call (half a second each, cached on disk).

    Parameters
    ----------
    token_dtypes
        Dtypes of stored tokens.
    out_dtypes
        Dtypes of batches.

    Returns
    -------
    str
        The backend that runs now. A backend selected by `use` or FASTPACK_KERNELS stays selected; if it is Numba, its
        kernels are compiled. Without numba, Cython stays selected.

    Examples
    --------
    >>> from fastpack import kernels
    >>> kernels.warm() in ("numba", "cython", "numpy")  # doctest: +SKIP
    True
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
            raise  # installed but broken: do not hide it
        return False
    return True


def _bind(name: str) -> None:
    global _backend
    if name not in BACKENDS:
        raise ValueError(f"unknown kernel backend {name!r}: choose one of {', '.join(BACKENDS)}")
    bound = {kernel: getattr(_load(modules[name], name), kernel) for kernel, modules in TABLE.items()}
    globals().update(bound)  # plain attributes: 5 to 25 ns over a direct call
    _backend = name


def _load(module: str, name: str) -> Any:
    try:
        return importlib.import_module(f"{__name__}.{module}")
    except ImportError as error:
        raise ImportError(f"kernel backend {name!r} is not available ({error}); {_remedy(module)}") from error


def _remedy(module: str) -> str:
    """Say how to repair an installation whose kernel module cannot be imported."""
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
        return globals().setdefault(name, kernel)  # keep what another thread's `use` has bound meanwhile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
