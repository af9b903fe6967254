"""The error of the codecs that parse."""

from __future__ import annotations

from enum import IntEnum


class CodecError(ValueError):
    """The bytes do not follow their format.

    fault: the reason. offset: in bytes from the start of the data. found, expected: short texts.
    """

    def __init__(self, fault: IntEnum, offset: int, found: str, expected: str) -> None:
        self.fault, self.offset, self.found, self.expected = fault, offset, found, expected
        super().__init__(f"at byte {offset}: found {found}, expected {expected}")

    def __reduce__(self) -> tuple[type[CodecError], tuple[object, ...]]:
        return type(self), (self.fault, self.offset, self.found, self.expected)
