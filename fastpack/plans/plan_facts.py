"""Facts about a packing plan, from its description."""

from __future__ import annotations

import os

from fastpack.analysis.file_facts import File, FileFacts
from fastpack.analysis.options import InspectOptions
from fastpack.io import AnyPath, stat_of
from fastpack.plans.plan_file import PlanFile

_NAMES = (
    "algorithm",
    "long",
    "seq_length",
    "max_documents",
    "pad_to_multiple",
    "seed",
    "data_parallel",
)


def plan_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    """Return the facts about a plan; a source that is missing or has changed is a warning."""
    del options
    plan = PlanFile(path)
    n_bytes, n_slots = stat_of(path).st_size, plan.n_rows * plan.seq_length
    facts = {
        "path": os.fspath(path),
        "kind": "plan",
        "bytes": n_bytes,
        **{name: getattr(plan, name) for name in _NAMES},
        "rows": plan.n_rows,
        "documents": plan.n_documents,
        "tokens": plan.n_tokens,
        "padding": plan.n_padding,
        "padding_share": round(plan.n_padding / n_slots, 6) if n_slots else 0.0,
        "cuts": plan.n_cuts,
        "left_out": plan.n_truncated + plan.n_dropped,
        "sources": list(dict.fromkeys(source.path for source in plan.sources)),
        "warnings": [str(error) for error in plan.changed_sources()],
    }
    return FileFacts(facts, "tokens", None, [File(os.path.basename(path), n_bytes, None)])
