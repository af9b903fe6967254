"""The rows of the comparison with Modalities, and numbers in a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

HEADER = ("operation", "input", "Modalities CPU / wall", "fastpack CPU / wall", "CPU ratio", "at least", "bytes equal")


@dataclass(frozen=True)
class Row:
    """One row: seconds per call, the best of the rounds, or a `note` if a side could not be measured."""

    title: str
    input: str
    peer_cpu: float = 0.0
    peer_wall: float = 0.0
    our_cpu: float = 0.0
    our_wall: float = 0.0
    bar: float | None = None
    equal: str = ""
    equal_expected: str = "yes"
    note: str = ""

    @property
    def ratio(self) -> float:
        """Return the CPU time of the peer divided by that of fastpack."""
        return self.peer_cpu / self.our_cpu if self.our_cpu else 0.0

    @property
    def failure(self) -> str | None:
        """Return the targets that the row misses."""
        if not self.our_cpu:
            return f"not measured: {self.note}"
        if self.equal != self.equal_expected:
            return f"bytes equal: {self.equal}, expected {self.equal_expected}"
        if self.bar is not None and self.ratio < self.bar:
            return f"{shown(self.ratio)}x, expected at least {self.bar:g}x"
        return None

    def cells(self) -> list[str]:
        bar = "-" if self.bar is None else f"{self.bar:g}x"
        if not self.our_cpu:
            return [self.title, self.input, "-", "-", "-", bar, self.note]
        times = [f"{shown(cpu)} / {shown(wall)} s" for cpu, wall in self._seconds()]
        return [self.title, self.input, *times, f"**{shown(self.ratio)}x**", bar, self.equal]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "failure": self.failure}

    def _seconds(self) -> tuple[tuple[float, float], ...]:
        return (self.peer_cpu, self.peer_wall), (self.our_cpu, self.our_wall)


def shown(value: float) -> str:
    """Format with three significant digits and thousands separators, without exponent."""
    if value >= 99.95:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.7f}".rstrip("0") if "e" in text else text
