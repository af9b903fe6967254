"""The types of what `fastpack trace --json` prints."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from fastpack.inspection.facts import Count, Minimum


class TracedRow(TypedDict):
    """a document of a row, or the whole row where boundaries are unknown"""

    rank: Annotated[Count, "the rank"]
    row: Annotated[Count, "the row in the batch of the rank"]
    source: Annotated[str, "the name of the dataset in a mixture, otherwise `dataset`"]
    sample: Annotated[Count, "the number of the sample in the dataset of the run"]
    skipped: NotRequired[Annotated[bool, "present and true if the step was skipped"]]
    key: NotRequired[Annotated[str, "the key of the sample, for a WebDataset"]]
    column: NotRequired[Annotated[Count, "the place of the first token in the row"]]
    file: NotRequired[Annotated[str, "the token file"]]
    document: NotRequired[Annotated[Count | None, "the number of the document in the file; null if unknown"]]
    corpus: NotRequired[Annotated[str, "its source: as `pack --record-lines` recorded it, or of JSON lines"]]
    line: NotRequired[Annotated[int, Minimum(1), "its line or row in `corpus`, from 1"]]
    start: NotRequired[Annotated[Count, "the first token, counted in the file"]]
    end: NotRequired[Annotated[Count, "the end of the tokens, exclusive"]]
    text: NotRequired[Annotated[str, "the text of the tokens, with `--text`"]]


class TraceStepJson(TypedDict):
    """a step of a run"""

    step: Annotated[Count, "the step"]
    steps: Annotated[Count, "the steps of the run so far; a step from there on is predicted"]
    rows: Annotated[list[TracedRow], "the contents of its rows"]


class FoundRow(TypedDict):
    """a row that contains tokens of the document"""

    step: Annotated[Count, "the step"]
    rank: Annotated[Count, "the rank"]
    row: Annotated[Count, "the row in the batch of the rank"]
    source: Annotated[str, "the name of the dataset in a mixture, otherwise `dataset`"]
    sample: Annotated[Count, "the number of the sample in the dataset of the run"]
    skipped: NotRequired[Annotated[bool, "present and true if the step was skipped"]]


class TraceDocumentJson(TypedDict):
    """the steps of a document"""

    document: Annotated[str, "the document, as FILE:NUMBER"]
    first_step: Annotated[Count, "the first step that is searched; the mixture before it is not known"]
    steps: Annotated[Count, "the steps of the run so far, which are searched"]
    rows: Annotated[list[FoundRow], "the rows that contain tokens of it"]
