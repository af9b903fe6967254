"""Making packing plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fastpack.argument_aliases import accept_aliases
from fastpack.errors import spoken
from fastpack.io import ExistencePolicy, PathLike, Progress, may_write, plain_path
from fastpack.plans.balance import Balance
from fastpack.plans.pack_bins import cut_stream, pack_ends
from fastpack.plans.pieces import piece_bytes
from fastpack.plans.plan_file import PlanFile
from fastpack.plans.plan_layout import PlanSections
from fastpack.plans.plan_result import PlanResult, bins_result, plan_result
from fastpack.plans.plan_settings import Algorithm, Long, PlanSettings
from fastpack.plans.plan_sources import folder_of, newest_time
from fastpack.plans.plan_writer import describe, write_bins, write_stream
from fastpack.plans.source_lengths import PieceLengths, Sources, TokenFormatOptions, read_sources
from fastpack.plans.straggling import measure_balance


@accept_aliases(file_existence_policy="if_exists")
def plan(
    sources: Sources,
    output: PathLike,
    *,
    seq_length: int,
    algorithm: Algorithm = "best_fit",
    long: Long = "split",
    seed: int | None = None,
    max_documents: int | None = None,
    pad_to_multiple: int = 1,
    balance: Literal["attention"] | None = None,
    data_parallel: int | None = None,
    micro_batches: int = 1,
    cost: tuple[float, float] = (0.0, 1.0),
    repeats: Sequence[float] | None = None,
    format: str | None = None,
    dtype: str | None = None,
    eos_token_id: int | None = None,
    num_threads: int = 1,
    if_exists: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> PlanResult:
    """Plan which documents, or pieces of documents, make up each row of training tokens.

    The plan contains numbers of documents, not tokens: at most 8 bytes per document. Only the lengths of documents are
    read.

    Parameters
    ----------
    sources
        One or more token files of any format, patterns, or folders of token files.
    output
        The plan, such as `corpus.plan`.
    seq_length
        Number of tokens of a row.
    algorithm
        "best_fit": best fit decreasing; rows of the same lengths as those of TRL's `bfd` and of OLMo-core. "first_fit":
        the first row with enough space, in the order of documents. "none": documents are concatenated and cut.
    long
        What happens to documents of more than `seq_length` tokens. "split": they fill rows from their first token on,
        and the rest is packed as a document. "truncate": they keep their first `seq_length` tokens. "drop": they are
        left out. With the algorithm "none", "split" cuts documents where a row ends.
    seed
        The seed of the order of rows, which is computed and takes no memory. None keeps the order of packing.
    max_documents
        The largest number of documents, or pieces of documents, in a row.
    pad_to_multiple
        Pad each document, and piece of a document, to a multiple of this number of tokens, which must divide
        `seq_length`: documents then begin and end at multiples, as kernels for FP8 (16) and context parallelism (twice
        the number of ranks) require. Not for the algorithm "none".
    balance
        "attention": order the rows so that the ranks of a data-parallel run have nearly the same cost in every step.
        Rank r takes the rows whose number modulo `data_parallel` is r. The order is random otherwise; without `seed`,
        the seed is 0. Not for the algorithm "none".
    data_parallel, micro_batches
        Number of ranks, and of rows of a rank in a step, for `balance`.
    cost
        The cost of a document of n tokens is cost[0] * n + cost[1] * n**2.
    repeats
        Number of passes over each source, such as 2 or 0.5. A fraction is a pass over a random subset of the documents,
        which depends on `seed`. By default 1 for each source.
    format, dtype, eos_token_id
        As for `open_tokens`, for all sources. Formats without document boundaries need `eos_token_id`.
    num_threads
        Number of threads for shards of 2^26 documents, which are packed independently; the result does not depend on
        it.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    progress
        Called with (documents read, all documents).

    Returns
    -------
    PlanResult
        Numbers of rows, documents and tokens.

    Raises
    ------
    FileNotFoundError
        If a source does not exist.
    FormatError
        If a source is damaged, or its format is not certain.
    ValueError
        If an argument is wrong, or the document boundaries of a source are unknown.
    TargetExists
        If the output exists and the policy is "error".

    Notes
    -----
    Documents are sorted by descending length, those of equal length by ascending number, and each goes to the row with
    the smallest remaining space that holds it; of several such rows, the one that has had this space for the longest
    time. The algorithm is that of "Fewer Truncations Improve Language Modeling" (arXiv 2404.10830), with a counting
    sort and a queue of rows for each remaining space, so its time is proportional to the number of documents. Documents
    without tokens take part in no row.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many(range(20), lengths=[5, 11, 1, 3])
    >>> result = fastpack.plan(writer.path, f"{folder.name}/a.plan", seq_length=8)
    >>> result.n_rows, result.n_tokens, result.n_padding, result.n_cuts
    (3, 20, 4, 1)
    >>> folder.cleanup()
    """
    balanced = _checked_balance(balance, data_parallel, micro_batches, cost)
    seed = 0 if balanced is not None and seed is None else seed
    settings = PlanSettings(seq_length, algorithm, long, seed, max_documents, balanced, pad_to_multiple)
    if num_threads < 1:
        raise ValueError(f"{spoken('num_threads')}: found {num_threads}, expected 1 or more")
    if not may_write(output, if_exists):
        return _kept(output)
    options = TokenFormatOptions(format, dtype, eos_token_id)
    found, lengths = read_sources(sources, repeats, options, settings, folder_of(output), progress)
    piece_bytes(len(lengths.ends), seq_length)  # raises ValueError for too many documents, before anything is written
    with PlanSections(output, if_exists) as sections:
        pack = _pack_stream if algorithm == "none" else _pack_bins
        result = pack(sections, plain_path(output), lengths, settings, num_threads)
        sections.finish(describe(result, settings, found), newest_time(found))
    if balanced is not None:
        result.straggling_before, result.straggling = measure_balance(PlanFile(output), balanced, seed or 0)
    return result


def _checked_balance(
    balance: str | None, data_parallel: int | None, micro_batches: int, cost: tuple[float, float]
) -> Balance | None:
    if balance is None:
        if data_parallel is not None:
            raise ValueError(f"{spoken('data_parallel')} is for balanced plans: pass {spoken('balance')} as well")
        return None
    if balance != "attention":
        raise ValueError(f"{spoken('balance')}: found {balance!r}, expected 'attention'")
    if data_parallel is None:
        raise ValueError(f"{spoken('balance')} needs the number of ranks: pass {spoken('data_parallel')}")
    return Balance(data_parallel, micro_batches, *cost)


def _kept(output: PathLike) -> PlanResult:
    """Return the result that describes an existing plan."""
    kept = PlanFile(output)
    without = ("output", "written", "straggling", "straggling_before")
    names = [name for name in PlanResult.__dataclass_fields__ if name not in without]
    return PlanResult(plain_path(output), **{name: getattr(kept, name) for name in names}, written=False)


def _pack_bins(
    sections: PlanSections, output: str, lengths: PieceLengths, settings: PlanSettings, num_threads: int
) -> PlanResult:
    bins = pack_ends(lengths.ends, settings, num_threads)
    n_bins, n_pieces = write_bins(sections, bins, lengths.full, lengths.ends, settings.seq_length)
    return bins_result(output, lengths, settings, n_bins, n_pieces)


def _pack_stream(
    sections: PlanSections, output: str, lengths: PieceLengths, settings: PlanSettings, _num_threads: int
) -> PlanResult:
    used = lengths.used(settings.seq_length)
    rows, n_rows, n_segments = cut_stream(used, settings)
    write_stream(sections, used, rows)
    return plan_result(output, lengths, settings, n_rows, n_segments)
