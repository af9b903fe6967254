"""Remember in the user's cache folder that an engine gave a tokenizer's ids on the probe texts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pkgutil
import sys
import unicodedata
from pathlib import Path

from fastpack.errors import JobError
from fastpack.io.cache_folder import cache_folder
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.version import __version__

FOLDER = "engines"
# A change of these modules asks for a new proof: the probe texts, and what decides which texts an engine encodes.
_MODULES = ("probe_texts", "gigatoken_engine", "tiktoken_engine", "postprocess", "unicode_drift")


class EngineProof:
    """Whether an engine gave the ids of `own` on the probe texts, on this machine, with these versions.

    Without a cache folder that only the user can write to, nothing is known and nothing is kept.
    """

    def __init__(self, own: HFTokenizer, engine: str) -> None:
        self._path: Path | None = None
        with contextlib.suppress(OSError, JobError, LookupError):
            self._path = cache_folder() / FOLDER / _digest(own, engine)

    def exists(self) -> bool:
        """Return whether the proof was kept."""
        return self._path is not None and self._path.is_file()

    def keep(self) -> None:
        """Keep the proof."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                self._path.touch()


def _digest(own: HFTokenizer, engine: str) -> str:
    digest = hashlib.blake2b(own.json, digest_size=16)
    names = (_release(engine), _release("tokenizers"), unicodedata.unidata_version, own.adds_special_tokens)
    digest.update(repr((__version__, *names)).encode())
    for name in _MODULES:
        digest.update(pkgutil.get_data("fastpack.tokenizers", f"{name}.py") or b"")
    return digest.hexdigest()


def _release(package: str) -> str:
    """Return name and version of an imported package; LookupError if unknown. `importlib.metadata` takes 20 ms."""
    folder = os.path.dirname(os.path.dirname(sys.modules[package].__file__ or ""))
    names = [name for name in os.listdir(folder) if name.startswith(f"{package}-") and name.endswith(".dist-info")]
    return names[0]
