"""The errors fastpack raises beside the built-in ones its peers raise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_names: ContextVar[Mapping[str, str]] = ContextVar("names", default={})  # noqa: B039


@contextmanager
def vocabulary(names: Mapping[str, str]) -> Iterator[None]:
    """Call the settings in messages by the names that the caller knows: setting -> flag, argument or key."""
    token = _names.set({**_names.get(), **names})
    try:
        yield
    finally:
        _names.reset(token)


def spoken(setting: str) -> str:
    """What the caller calls a setting."""
    return _names.get().get(setting, setting)


INTERRUPTS = (KeyboardInterrupt, SystemExit)  # Ctrl-C, and what the command line makes of SIGTERM


def note_interrupt(error: BaseException, share: float, how: str = "call again with resume=True") -> None:
    """Note on an interrupt how far the work is, as a share of all, and how to continue it."""
    error.add_note(f"stopped at {int(100 * share)} %; {spoken(how)} to continue")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, in the singular or plural: "1 line", "2,000 lines"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ending(number: int) -> str:
    """The ending of a regular noun after a number: nothing after 1, else "s"."""
    return "" if number == 1 else "s"


class FastpackError(Exception):
    """Base of every error of fastpack's own."""


class FormatError(FastpackError, ValueError):
    """A file does not hold what its format says.

    path: the file; offset: bytes from its start; found, expected: short texts.
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
    """An index does not belong to its source as the source is now: it was changed, or the index is of another file.

    path: the index; source: the file whose index it was taken for; found: what shows that it is not; owner: the file
    whose index it is, if that is known.
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
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra, self.purpose = package, extra, purpose
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'fastpack-llm[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:
        return type(self), (self.package, self.extra, self.purpose)


class UntrustedCode(FastpackError, ValueError):
    """Data asks for code to be run, and nobody said that it may: trust_code=True does. Nothing was run."""


class MediaError(FastpackError, ValueError):
    """Audio, video or an image that cannot be decoded: damaged, of another kind, or too large once decoded."""


class JobError(FastpackError, RuntimeError):
    """A build step could not finish; nothing was written under the target's name."""


class DataWarning(UserWarning):
    """Data that can be read but is probably not what its owner thinks; the text says what to do."""
