"""The result of `plan`."""

from __future__ import annotations

from dataclasses import dataclass

from fastpack.display import Result, facts
from fastpack.plans.plan_settings import PlanSettings
from fastpack.plans.source_lengths import LengthReader
from fastpack.plans.written_rows import WrittenRows


@dataclass(slots=True, repr=False)
class PlanResult(Result):
    """The result of `plan`. Tokens are counted so that n_tokens + n_truncated + n_dropped == n_source_tokens.

    Attributes
    ----------
    output
        The path of the plan.
    seq_length
        Number of tokens of a row.
    algorithm, long
        As they were passed.
    n_rows
        Number of rows.
    n_segments
        Number of documents and pieces of documents in the rows.
    n_documents
        Number of documents of which a segment is in some row.
    n_tokens
        Number of tokens in rows.
    n_padding
        Number of tokens that are missing in the rows: n_rows * seq_length - n_tokens.
    n_truncated
        Number of tokens that are left out at the end of long documents.
    n_dropped
        Number of tokens that are left out with whole documents.
    n_cuts
        Number of places where a document is divided between two rows.
    n_source_documents, n_source_tokens
        Number of documents of all sources and passes, and of tokens in those that take part.
    straggling_before, straggling
        Of a balanced plan, the cost of the slowest rank of each step, summed over steps, divided by the mean of all
        ranks: in random order, and in the order of the plan. The time of a run is proportional to it. None for other
        plans.
    uneven_steps
        Of a balanced plan, the number of steps of which the slowest rank has more than 1.02 times the mean cost: the
        rows that fit in no other step. None for other plans.
    written
        False if the output exists and was kept.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many(range(12), lengths=[5, 4, 3])
    >>> result = fastpack.plan(writer.path, f"{folder.name}/a.plan", seq_length=8)
    >>> result.n_rows, result.n_tokens, result.n_padding, result.padding_share
    (2, 12, 4, 0.25)
    >>> folder.cleanup()
    """

    _shown = facts("output", rows="n_rows", seq_length="seq_length", tokens="n_tokens", padding="n_padding")

    output: str
    seq_length: int
    algorithm: str
    long: str
    n_rows: int
    n_segments: int
    n_documents: int
    n_tokens: int
    n_padding: int
    n_truncated: int
    n_dropped: int
    n_cuts: int
    n_source_documents: int
    n_source_tokens: int
    straggling_before: float | None = None
    straggling: float | None = None
    uneven_steps: int | None = None
    written: bool = True

    @property
    def padding_share(self) -> float:
        """The share of the tokens of all rows that is padding."""
        return self.n_padding / (self.n_rows * self.seq_length) if self.n_rows else 0.0

    @property
    def time_saved(self) -> float | None:
        """The share of the time in random order that the order of a balanced plan saves, by its cost model."""
        if self.straggling is None or self.straggling_before is None:
            return None
        return 1 - self.straggling / self.straggling_before


def plan_result(output: str, lengths: LengthReader, settings: PlanSettings, written: WrittenRows) -> PlanResult:
    """Return the result of writing the rows of all documents."""
    n_full = 0 if settings.algorithm == "none" else lengths.n_full
    n_rows, n_segments = written.n_rows + n_full, written.n_segments + n_full
    n_tokens = lengths.n_tokens - lengths.n_truncated - lengths.n_dropped
    return PlanResult(
        output=output,
        seq_length=settings.seq_length,
        algorithm=settings.algorithm,
        long=settings.long,
        n_rows=n_rows,
        n_segments=n_segments,
        n_documents=lengths.n_used,
        n_tokens=n_tokens,
        n_padding=n_rows * settings.seq_length - n_tokens,
        n_truncated=lengths.n_truncated,
        n_dropped=lengths.n_dropped,
        n_cuts=n_segments - lengths.n_used,
        n_source_documents=lengths.n_documents,
        n_source_tokens=lengths.n_tokens,
    )
