"""Exceptions of fastpack, and helpers for their messages."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_names: ContextVar[Mapping[str, str]] = ContextVar("names", default={})  # noqa: B039


@contextmanager
def vocabulary(names: Mapping[str, str]) -> Iterator[None]:
    """Use the caller's names of settings in messages: setting -> flag, argument or key."""
    token = _names.set({**_names.get(), **names})
    try:
        yield
    finally:
        _names.reset(token)


def spoken(setting: str) -> str:
    """Return the caller's name of a setting."""
    return _names.get().get(setting, setting)


INTERRUPTS = (KeyboardInterrupt, SystemExit)  # Ctrl-C, and SIGTERM on the command line


def note_interrupt(error: BaseException, share: float, how: str = "call again with resume=True") -> None:
    """Add a note to an interrupt: the share of the work that is done, and how to continue."""
    error.add_note(f"stopped at {int(100 * share)} %; {spoken(how)} to continue")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun in the singular or plural: "1 line", "2,000 lines"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ending(number: int) -> str:
    """Return the ending of a regular noun after a number: nothing after 1, else "s"."""
    return "" if number == 1 else "s"


class FastpackError(Exception):
    """Base class of the exceptions that fastpack defines.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "empty.pbin")
    >>> path.touch()
    >>> try:
    ...     fastpack.PackedFile(path)
    ... except fastpack.FastpackError as error:
    ...     print(type(error).__name__)
    FormatError
    >>> folder.cleanup()
    """


class FormatError(FastpackError, ValueError):
    """Raised when the contents of a file do not match its format.

    Parameters
    ----------
    path
        The file.
    offset
        Position of the problem, in bytes from the start of the file.
    found, expected
        Short descriptions of the contents found and expected.

    Attributes
    ----------
    path, offset, found, expected
        As the parameters.

    Examples
    --------
    >>> import fastpack
    >>> error = fastpack.FormatError("a.pbin", 8, "token size 3", "1, 2 or 4")
    >>> print(error)
    a.pbin: at byte 8: found token size 3, expected 1, 2 or 4
    >>> isinstance(error, ValueError), error.offset
    (True, 8)
    """

    def __init__(self, path: str | os.PathLike[str], offset: int, found: object, expected: object) -> None:
        self.path = os.fspath(path)
        self.offset = int(offset)
        self.found = found
        self.expected = expected
        super().__init__(f"{self.path}: at byte {self.offset}: found {found}, expected {expected}")

    def __reduce__(self) -> tuple[type[FormatError], tuple[object, ...]]:
        return type(self), (self.path, self.offset, self.found, self.expected)


class StaleIndex(FormatError):
    """Raised when an index does not match its source: the source changed, or the index belongs to another file.

    Parameters
    ----------
    path
        The index.
    source
        The file that the index was expected to match.
    found
        The difference between the index and the source.
    remedy
        What to do, as a sentence.
    owner
        The file that the index belongs to, if known.

    Examples
    --------
    >>> import fastpack
    >>> print(fastpack.StaleIndex("a.idx", "a.jsonl", "the source has 3 more bytes", "Index it again."))
    a.idx is not the index of a.jsonl as it is now: the source has 3 more bytes. Index it again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        source: str | os.PathLike[str],
        found: str,
        remedy: str,
        owner: str | None = None,
    ) -> None:
        self.source, self.remedy, self.owner = os.fspath(source), remedy, owner
        super().__init__(path, 0, found, f"the index of {self.source} as it is now ({remedy})")
        self.args = (f"{self.path} is not the index of {self.source} as it is now: {found}. {remedy}",)

    def __reduce__(self) -> tuple[type[StaleIndex], tuple[object, ...]]:
        return type(self), (self.path, self.source, self.found, self.remedy, self.owner)


class MissingExtra(FastpackError, ImportError):
    """Raised when an optional dependency is not installed.

    Parameters
    ----------
    package
        The missing package.
    extra
        The extra of fastpack that installs the package.
    purpose
        What the package is needed for.

    Examples
    --------
    >>> import fastpack
    >>> print(fastpack.MissingExtra("xxhash", "checksum", "writing checksums"))
    writing checksums needs the package 'xxhash': pip install 'fastpack-llm[checksum]'
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra, self.purpose = package, extra, purpose
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'fastpack-llm[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:
        return type(self), (self.package, self.extra, self.purpose)


def import_extra(module: str, extra: str, purpose: str, *, package: str | None = None) -> Any:
    """Import an optional dependency. Raises MissingExtra if it is not installed (as `package`, if its name differs)."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingExtra(package or module, extra, purpose) from error


class UntrustedCode(FastpackError, ValueError):
    """Raised when data requires code to run that is not trusted; nothing was run. `trust_code=True` allows it.

    Examples
    --------
    >>> import io, tarfile, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tarfile.open(f"{folder.name}/0.tar", "w") as tar:
    ...     tar.addfile(tarfile.TarInfo("sample.pkl"), io.BytesIO())
    >>> _ = fastpack.prepare(folder.name, split_ratio=(1, 0, 0))
    >>> with fastpack.WebDataset(folder.name) as dataset:
    ...     try:
    ...         dataset[0]
    ...     except fastpack.UntrustedCode:
    ...         print("unpickling runs code")
    unpickling runs code
    >>> folder.cleanup()
    """


class MediaError(FastpackError, ValueError):
    """Raised when audio, video or an image cannot be decoded: damaged, of another type, or too large when decoded.

    Examples
    --------
    >>> import fastpack
    >>> try:
    ...     fastpack.webdataset.AVDecoder(b"no media").get_video()
    ... except fastpack.MediaError:
    ...     print("not a media file")
    not a media file
    """


class JobError(FastpackError, RuntimeError):
    """Raised when an operation cannot finish; nothing was written under the name of the output.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> try:
    ...     fastpack.prepare(folder.name, split_ratio=(1, 0, 0))
    ... except fastpack.JobError:
    ...     print("the folder has no shards")
    the folder has no shards
    >>> folder.cleanup()
    """


class DataWarning(UserWarning):
    """Warning about data that can be read but is probably not what the user expects; the text says what to do.

    Examples
    --------
    Turn these warnings into errors, to stop a job before it trains on such data:

    >>> import warnings, fastpack
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", fastpack.DataWarning)
    """
