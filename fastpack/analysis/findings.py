"""The result of checks: findings and reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fastpack.display import Result, facts
from fastpack.errors import FormatError, counted

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that `verify` found.

    Attributes
    ----------
    severity
        "error" if something is wrong, "warning" if something is doubtful.
    file
        The file.
    offset
        Bytes from the start of the file; None if the problem has no position.
    found, expected
        What the file contains, and what it should contain.

    Examples
    --------
    >>> import fastpack
    >>> print(fastpack.Finding("error", "a.pbin", 12, "token 70000", "ids below the vocabulary's 50257"))
    error: a.pbin: at byte 12: found token 70000, expected ids below the vocabulary's 50257
    """

    severity: Severity
    file: str
    offset: int | None
    found: str
    expected: str

    @classmethod
    def of(cls, error: FormatError) -> Finding:
        """Return an error as a finding.

        Parameters
        ----------
        error
            The error that a reader raised.

        Returns
        -------
        Finding
            A finding of severity "error".
        """
        return cls("error", error.path, error.offset, str(error.found), str(error.expected))

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file}: at byte {self.offset}"
        return f"{self.severity}: {place}: found {self.found}, expected {self.expected}"


@dataclass(slots=True, repr=False)
class VerifyReport(Result):
    """The result of `verify`.

    Attributes
    ----------
    path
        The file or dataset.
    kind
        Its kind, such as "pbin" or "webdataset".
    checked
        What was checked, such as {"documents": 20, "tokens": 4000}.
    findings
        The problems, at most `max_findings`.
    n_more
        Number of problems that are not listed.
    n_errors
        Number of problems of severity "error".

    Examples
    --------
    >>> import fastpack
    >>> report = fastpack.VerifyReport("a.pbin", "pbin", checked={"documents": 1})
    >>> report.add("warning", "a.pbin", 0, "generation 4", "generation 5")
    >>> report.is_sound, report.n_warnings
    (True, 1)
    >>> for line in report.lines():
    ...     print(line)
    warning: a.pbin: at byte 0: found generation 4, expected generation 5
    a.pbin: pbin: 1 document: sound, 1 warning
    """

    _shown = facts("path", "kind", errors="n_errors", warnings="n_warnings", checked=lambda self: self.amounts())

    path: str
    kind: str
    checked: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    n_more: int = 0
    n_errors: int = 0

    max_findings = 1000

    @property
    def is_sound(self) -> bool:
        """Whether there is no error. There may be warnings."""
        return self.n_errors == 0

    @property
    def n_warnings(self) -> int:
        """Number of problems of severity "warning"."""
        return len(self.findings) + self.n_more - self.n_errors

    def add(self, severity: Severity, file: object, offset: int | None, found: str, expected: str) -> None:
        """Add a finding.

        Parameters
        ----------
        severity, file, offset, found, expected
            As in `Finding`.
        """
        self.take(Finding(severity, str(file), offset, found, expected))

    def take(self, *findings: Finding) -> None:
        """Add findings. Beyond `max_findings` they are only counted.

        Parameters
        ----------
        *findings
            The findings.
        """
        for finding in findings:
            self.n_errors += finding.severity == "error"
            if len(self.findings) < self.max_findings:
                self.findings.append(finding)
            else:
                self.n_more += 1

    def count(self, **amounts: int) -> None:
        """Add to the amounts of what was checked.

        Parameters
        ----------
        **amounts
            Amounts by name, such as documents=20.
        """
        for name, amount in amounts.items():
            self.checked[name] = self.checked.get(name, 0) + amount

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data.

        Returns
        -------
        dict
            {"path", "kind", "sound", "checked", "findings": [{"severity", "file", "offset", ...}], "more"}.
        """
        findings = [asdict(finding) for finding in self.findings]
        facts = {"path": self.path, "kind": self.kind, "sound": self.is_sound, "checked": self.checked}
        return {**facts, "findings": findings, "more": self.n_more}

    def lines(self) -> Iterator[str]:
        """Return the report as text.

        Yields
        ------
        str
            Each finding, then a summary.
        """
        yield from map(str, self.findings)
        if self.n_more:
            yield f"and {self.n_more:,} more"
        verdict = counted(self.n_errors, "error") if self.n_errors else "sound"
        yield f"{self.path}: {self.kind}: {self.amounts()}: {verdict}, {counted(self.n_warnings, 'warning')}"

    def amounts(self) -> str:
        """Return what was checked as text.

        Returns
        -------
        str
            Such as "3 shards, 20 samples".
        """
        return ", ".join(_amount(amount, name.replace("_", " ")) for name, amount in self.checked.items())


def _amount(amount: int, things: str) -> str:
    """Return "1 shard" for 1 and "shards"."""
    first, _, rest = things.partition(" ")
    one = f"{first[:-3]}y" if first.endswith("ies") else first.removesuffix("s")
    return f"{counted(amount, one, first)}{rest and ' '}{rest}"
