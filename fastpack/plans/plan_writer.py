"""Writing packing plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.plans.count_column import CountEncoder
from fastpack.plans.cut_stream import StreamCutter
from fastpack.plans.pack_bins import PackedShard
from fastpack.plans.plan_layout import PlanSections
from fastpack.plans.plan_result import PlanResult
from fastpack.plans.plan_settings import PlanSettings
from fastpack.plans.plan_sources import PlanSource
from fastpack.plans.step_order import StepOrder
from fastpack.plans.written_rows import WrittenRows


def write_bins(sections: PlanSections, shards: Iterable[PackedShard]) -> WrittenRows:
    """Write rows of pieces. The rows of all shards that are in no group of even cost come last."""
    documents, rows = CountEncoder("documents", "|u1"), CountEncoder("rows", "|u1")
    last: list[PackedShard] = []
    even_costs = np.empty(0)
    n_segments = n_skipped = n_even = 0
    sections.write("pieces", np.empty(0, np.uint8))
    for shard in shards:
        documents.add(shard.full)
        width = len(shard.pieces) // max(1, int(shard.counts.sum(dtype=np.int64)))
        end = width * int(shard.counts[: shard.n_even].sum(dtype=np.int64))
        sections.write("pieces", shard.pieces[:end])
        rows.add(shard.counts[: shard.n_even])
        n_segments += int(shard.counts.sum(dtype=np.int64))
        others = shard.pieces[end:].copy(), shard.counts[shard.n_even :].copy(), shard.costs[shard.n_even :].copy()
        last.append(PackedShard(np.empty(0, np.uint32), *others, 0, 0))
        n_skipped += shard.n_skipped
        even_costs = even_costs if n_even else shard.costs[: shard.n_even]
        n_even += shard.n_even
    for shard in last:
        sections.write("pieces", shard.pieces)
        rows.add(shard.counts)
    for column in (documents, rows):
        sections.write_columns(column.columns())
    costs = np.concatenate([np.empty(0), *(shard.costs for shard in last)])
    return WrittenRows(rows.n_items, n_segments, n_skipped, n_even, even_costs, costs)


def write_stream(
    sections: PlanSections, shards: Iterable[npt.NDArray[np.uint32]], settings: PlanSettings
) -> WrittenRows:
    """Write rows that divide the concatenation of documents; shards: tokens that are used of documents."""
    cutter, documents, rows = StreamCutter(settings), CountEncoder("documents", "<u4"), CountEncoder("rows", "<u4")
    costs = [np.empty(0)]
    sections.write("documents", np.empty(0, np.uint32))
    for used in shards:
        sections.write("documents", documents.encode(used))
        rows_of_shard, costs_of_rows = cutter.add(used)
        costs.append(costs_of_rows)
        if settings.max_documents is not None:
            rows.add(rows_of_shard)
    rows_of_shard, costs_of_rows = cutter.finish()
    sections.write_columns(documents.columns())
    if settings.max_documents is not None:  # otherwise all but the last are full
        rows.add(rows_of_shard)
        sections.write_columns(rows.columns())
    return WrittenRows(cutter.n_rows, cutter.n_segments, 0, 0, np.empty(0), np.concatenate([*costs, costs_of_rows]))


def permutation_keys(seed: int | None) -> list[int] | None:
    """Return the keys of `kernels.feistel` for the order of the rows; None for the order in which they are stored."""
    if seed is None:
        return None
    return [int(key) for key in np.random.SeedSequence(seed).generate_state(4, np.uint64)]


def write_order(sections: PlanSections, order: StepOrder, n_rows: int) -> None:
    """Write the rows of a balanced plan that are listed."""
    sections.write("order", order.listed.astype("<u4" if n_rows < 1 << 32 else "<i8"))


def describe_order(order: StepOrder, seed: int) -> dict[str, Any]:
    """Return what the description of a balanced plan has in addition."""
    keys = [int(key) for key in np.random.SeedSequence([seed, 1]).generate_state(4, np.uint64)]
    return {"step_order": {"first": order.first, "last_steps": order.n_last_steps, "keys": keys}}


def describe(result: PlanResult, settings: PlanSettings, sources: Sequence[PlanSource]) -> dict[str, Any]:
    """Return the description of a plan: its counts and settings, and its sources, each once."""
    counts = {name: value for name, value in asdict(result).items() if name.startswith(("n_", "seq_"))}
    unique = list(dict.fromkeys(sources))
    numbers = {source: number for number, source in enumerate(unique)}
    return {
        **counts,
        **asdict(settings),
        "keys": permutation_keys(settings.seed),
        "sources": [asdict(source) for source in unique],
        "passes": [numbers[source] for source in sources],
    }
