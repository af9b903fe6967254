"""Types of the JSON results about packing plans."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from fastpack.inspection.facts import Count, Minimum


class PlanJson(TypedDict):
    """a packing plan"""

    output: Annotated[str, "the plan"]
    seq_length: Annotated[int, Minimum(1), "tokens of a row"]
    algorithm: Annotated[Literal["best_fit", "first_fit", "none"], "the algorithm"]
    long: Annotated[Literal["split", "truncate", "drop"], "what happened to documents longer than a row"]
    n_rows: Annotated[Count, "rows"]
    n_segments: Annotated[Count, "documents and pieces of documents in the rows"]
    n_documents: Annotated[Count, "documents of which a segment is in some row"]
    n_tokens: Annotated[Count, "tokens in rows"]
    n_padding: Annotated[Count, "tokens that are missing in the rows"]
    n_truncated: Annotated[Count, "tokens left out at the end of long documents"]
    n_dropped: Annotated[Count, "tokens left out with long documents"]
    n_cuts: Annotated[Count, "places where a document is divided between two rows"]
    n_source_documents: Annotated[Count, "documents of all sources and passes"]
    n_source_tokens: Annotated[Count, "tokens in the documents that take part"]
    padding_share: Annotated[float, "share of the tokens of all rows that is padding"]
    straggling_before: Annotated[
        float | None, "cost of the slowest rank divided by the mean, in random order; null without `--balance`"
    ]
    straggling: Annotated[float | None, "the same in the order of the plan"]
    time_saved: Annotated[float | None, "share of the time of a run that the order saves"]
    uneven_steps: Annotated[
        Count | None,
        "steps in which the slowest rank costs more than 1.02 times the mean; null without `--balance`",
    ]
    written: Annotated[bool, "false if the plan existed and was kept"]
