"""The tokenizer fingerprint of several token files that are combined: files of different tokenizers are refused."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from fastpack.errors import DataWarning, spoken
from fastpack.io import TOKENIZER, PathLike, is_remote
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, read_fingerprint, stated_fingerprint

MIX = "Pass mix_tokenizers=True"
Recorded: TypeAlias = tuple[str, TokenizerFingerprint]  # a file and its fingerprint
_WITH_INDEX = ("litdata", "mds")  # folders whose side file describes their index.json


class CommonFingerprint:
    """The fingerprint that token files share.

    mix: whether files with different fingerprints may be combined, with a DataWarning; the result then has none.
    """

    def __init__(self, mix: bool = False) -> None:
        self._mix = mix
        self.first: Recorded | None = None  # the first file that has one
        self._is_common = True

    def add(self, path: PathLike, fingerprint: TokenizerFingerprint | None) -> None:
        """Add a file and its fingerprint, if it has one; ValueError if it differs from another one, unless `mix`."""
        if fingerprint is None:
            self._is_common = False
        elif self.first is None:
            self.first = os.fspath(path), fingerprint
        elif differing := self.first[1].differences(fingerprint):
            names = f"{self.first[1].tokenizer} and {fingerprint.tokenizer}"
            text = f"{self.first[0]} and {os.fspath(path)} have different tokenizers, {names}: {', '.join(differing)}"
            if not self._mix:
                raise ValueError(f"{text}. {spoken(MIX)} to combine them anyway")
            if self._is_common:
                warnings.warn(text, DataWarning, stacklevel=4)
            self._is_common = False

    def add_file(self, tokens: TokenFile) -> TokenizerFingerprint | None:
        """Add an open token file; return its fingerprint."""
        found = [(path, read_fingerprint(path)) for path in described_files(tokens)]
        for path, fingerprint in found:
            self.add(path, fingerprint)
        return shared_fingerprint([fingerprint for _, fingerprint in found])

    @property
    def common(self) -> TokenizerFingerprint | None:
        """The fingerprint of the combined file: None unless all files have the same one."""
        return self.first[1] if self.first is not None and self._is_common else None


def shared_fingerprint(fingerprints: Sequence[TokenizerFingerprint | None]) -> TokenizerFingerprint | None:
    """Return the fingerprint of files that are combined: None unless all of them have the same one."""
    first = fingerprints[0] if fingerprints else None
    if first is None or any(other is None or first.differences(other) for other in fingerprints):
        return None
    return first


def first_of_files(paths: Iterable[str], mix: bool = False) -> Recorded | None:
    """Return the first fingerprint of local files, and its file; ValueError if two differ, unless `mix`.

    Each folder is listed once, so that only existing side files are opened. Files in a store are not compared: each
    would cost a request.
    """
    found, folders = CommonFingerprint(mix), dict[str, set[str]]()
    for path in paths:
        if is_remote(path):
            return None
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = {entry for entry in os.listdir(folder or ".") if entry.endswith(TOKENIZER)}
        if name + TOKENIZER in folders[folder]:
            found.add(path, stated_fingerprint(path))
    return found.first


def warn_of_other_eos(recorded: Recorded | None, eos_token_id: int | None, stacklevel: int) -> None:
    """Warn if documents end with another token than the recorded tokenizer's, where files do not store their ends."""
    if recorded is None or eos_token_id in (None, recorded[1].eos_token_id):
        return
    path, fingerprint = recorded
    text = f"{path}: eos_token_id is {eos_token_id}, but the tokenizer {fingerprint.tokenizer} ended documents in"
    warnings.warn(f"{text} {fingerprint.eos_token_id}", DataWarning, stacklevel=stacklevel + 1)


def warn_of_other_eos_in(tokens: TokenFile, eos_token_id: int | None) -> None:
    """Warn the caller as `warn_of_other_eos`, of the tokenizer that is recorded with a local token file."""
    if eos_token_id is not None and not is_remote(tokens.path):
        warn_of_other_eos(first_of_files(described_files(tokens), mix=True), eos_token_id, stacklevel=2)


def described_files(tokens: TokenFile) -> Iterator[str]:
    """Yield the files of a token file that side files describe."""
    if tokens.format in _WITH_INDEX:
        yield os.path.join(tokens.path, "index.json")
    elif tokens.format == "pbin":
        yield tokens.path
    elif tokens.format != "manifest":  # its shards may be missing
        yield from dict.fromkeys(segment.path for segment in tokens.segments())


def common_fingerprint(files: Iterable[TokenFile], mix: bool = False) -> TokenizerFingerprint | None:
    """Return the fingerprint that all files have; None if one has none. ValueError if two differ, unless `mix`."""
    found = CommonFingerprint(mix)
    for tokens in files:
        found.add_file(tokens)
    return found.common
