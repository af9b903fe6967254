"""What a check says: findings, and the report they are in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fastpack.display import Result, facts
from fastpack.errors import FormatError, counted

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, an "error", or doubtful, a "warning": what was found in `file`, and what was expected.

    offset: bytes from the start of the file, None where there is no such place.
    """

    severity: Severity
    file: str
    offset: int | None
    found: str
    expected: str

    @classmethod
    def of(cls, error: FormatError) -> Finding:
        """An error that was raised, as a finding."""
        return cls("error", error.path, error.offset, str(error.found), str(error.expected))

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file}: at byte {self.offset}"
        return f"{self.severity}: {place}: found {self.found}, expected {self.expected}"


@dataclass(slots=True, repr=False)
class VerifyReport(Result):
    """What `verify` found in `path`, a dataset or file of the format `kind`; `checked` counts what was looked at.

    n_more: findings beyond those that are listed.
    """

    _shown = facts("path", "kind", errors="n_errors", warnings="n_warnings", checked=lambda self: self.looked_at())

    path: str
    kind: str
    checked: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    n_more: int = 0
    n_errors: int = 0

    max_findings = 1000

    @property
    def is_sound(self) -> bool:
        """Whether there is no error; warnings may be there."""
        return self.n_errors == 0

    @property
    def n_warnings(self) -> int:
        """Findings that are no errors."""
        return len(self.findings) + self.n_more - self.n_errors

    def add(self, severity: Severity, file: object, offset: int | None, found: str, expected: str) -> None:
        """One more finding."""
        self.take(Finding(severity, str(file), offset, found, expected))

    def take(self, *findings: Finding) -> None:
        """More findings; beyond `max_findings` they are counted only."""
        for finding in findings:
            self.n_errors += finding.severity == "error"
            if len(self.findings) < self.max_findings:
                self.findings.append(finding)
            else:
                self.n_more += 1

    def count(self, **amounts: int) -> None:
        """Add to what was looked at."""
        for name, amount in amounts.items():
            self.checked[name] = self.checked.get(name, 0) + amount

    def as_json(self) -> dict[str, Any]:
        """{"path", "kind", "sound", "checked", "findings": [{"severity", "file", "offset", ...}], "more"}."""
        findings = [asdict(finding) for finding in self.findings]
        facts = {"path": self.path, "kind": self.kind, "sound": self.is_sound, "checked": self.checked}
        return {**facts, "findings": findings, "more": self.n_more}

    def lines(self) -> Iterator[str]:
        """For a person: the findings, then what was looked at."""
        yield from map(str, self.findings)
        if self.n_more:
            yield f"and {self.n_more:,} more"
        verdict = counted(self.n_errors, "error") if self.n_errors else "sound"
        yield f"{self.path}: {self.kind}: {self.looked_at()}: {verdict}, {counted(self.n_warnings, 'warning')}"

    def looked_at(self) -> str:
        """What was looked at, as "3 shards, 20 samples"."""
        return ", ".join(_amount(amount, name.replace("_", " ")) for name, amount in self.checked.items())


def _amount(amount: int, things: str) -> str:
    """Such as "1 shard" for 1 and "shards"."""
    first, _, rest = things.partition(" ")
    one = f"{first[:-3]}y" if first.endswith("ies") else first.removesuffix("s")
    return f"{counted(amount, one, first)}{rest and ' '}{rest}"
