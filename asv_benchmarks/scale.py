"""Estimate the time of commands on large clusters: a simulation based on measurements on this machine.

    python asv_benchmarks/scale.py              print the tables of docs/scale.md
    python asv_benchmarks/scale.py --write      write them to docs/scale.md
    python asv_benchmarks/scale.py --measure    measure this machine again (scale.json), then --write; two minutes

Tasks are assigned to ranks as in fastpack. Nodes fail and are slow at random, with a seed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scale_simulation import GB, HOUR, PB, TB, Cluster, plan_of, simulate

FOLDER = Path(__file__).resolve().parent
MEASURED, PAGE = FOLDER / "scale.json", FOLDER.parent / "docs" / "scale.md"
START, END = "<!-- simulated -->", "<!-- /simulated -->"
CORPORA, NODES = {"1 TB": TB, "10 TB": 10 * TB, "1 PB": PB}, (10, 100, 1000)
ROW = "| {} |"
JOBS = ("index", "pack, tokenizers", "pack, bytes", "merge", "shuffle", "chunk", "prepare", "verify")


def show_seconds(seconds: float) -> str:
    for unit, size in (("d", 24 * HOUR), ("h", HOUR), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.{1 if seconds < 10 * size else 0}f} {unit}"
    return f"{seconds:.0f} s"


def show_bytes(n_bytes: float) -> str:
    for unit, size in (("PB", PB), ("TB", TB), ("GB", GB), ("MB", 10**6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.{1 if n_bytes < 10 * size else 0}f} {unit}"
    return f"{n_bytes / 1000:.0f} kB"


def show_count(number: float) -> str:
    for unit, size in (("G", GB), ("M", 10**6), ("k", 1000)):
        if number >= size:
            return f"{number / size:.{1 if number < 10 * size else 0}f} {unit}"
    return f"{number:,.0f}"


def time_rows(measured: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the time by job, corpus and number of nodes, the last step, and the time with Ray."""
    yield ["job", "corpus", *(f"{nodes:,} nodes" for nodes in NODES), "last step", f"{NODES[-1]:,} nodes, Ray"]
    for job in JOBS:
        for name, n_bytes in CORPORA.items():
            plan = plan_of(job, n_bytes, measured)
            found = [simulate(plan, Cluster(nodes), measured) for nodes in NODES]
            shown = [show_seconds(one.planning + one.ranks) for one in found]
            if plan.marks:
                ray = simulate(plan, Cluster(NODES[-1]), measured, ray=True)
                yield [job, name, *shown, show_seconds(ray.last), show_seconds(ray.planning + ray.ranks)]
            else:
                yield [job, name, *shown, "-", "-"]


def load_rows(measured: dict[str, Any]) -> Iterator[list[str]]:
    """Yield tasks and load on 100 nodes; bold: more than the memory, or more than an hour of metadata calls."""
    yield [
        "job",
        "corpus",
        "tasks",
        "bytes per task",
        "busy ranks",
        "memory per rank",
        "memory of the last step",
        "metadata calls",
        "their duration",
    ]
    cluster = Cluster(100)
    for job in JOBS:
        for name, n_bytes in CORPORA.items():
            plan = plan_of(job, n_bytes, measured)
            found = simulate(plan, cluster, measured)
            on_a_node = min(cluster.cores, plan.n_tasks)
            seconds = found.calls / cluster.calls
            yield [
                job,
                name,
                f"{plan.n_tasks:,}",
                show_bytes(plan.task_bytes),
                f"{100 * found.busy:.0f} %",
                bold(show_bytes(plan.memory), plan.memory * on_a_node > cluster.memory),
                bold(show_bytes(plan.last_memory), plan.last_memory > cluster.memory) if plan.last_bytes else "-",
                show_count(found.calls),
                bold(show_seconds(seconds), seconds > HOUR),
            ]


def bold(text: str, condition: bool) -> str:
    return f"**{text}**" if condition else text


TOKENS_PER_SECOND, SEQ_LEN, GPUS, SHARD_BYTES = 10_000, 4096, 8, 200 << 20
BLOCK = 4 << 20  # of the cache for stores


def training_rows(measured: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the requirements of a training run with tokens of 4 bytes."""
    cost = measured["training"]
    yield [
        "tokens",
        "nodes",
        "shards",
        "from a folder",
        "from a manifest",
        "order of an epoch",
        "reads",
        "from a store",
    ]
    for name, n_bytes in CORPORA.items():
        n_shards, n_samples = math.ceil(n_bytes / SHARD_BYTES), n_bytes // (4 * SEQ_LEN)
        for nodes in NODES:
            ranks = nodes * GPUS
            samples = ranks * TOKENS_PER_SECOND / SEQ_LEN
            opening = n_shards * max(cost["open_shard_s"], ranks / Cluster(nodes).calls)
            manifest = cost["open_manifest_s"] * max(1.0, n_shards / 4000)
            order = n_samples * (4 if n_samples < 2**31 else 8)
            taking = show_seconds(n_samples * cost["order_sample_s"])
            yield [
                name,
                f"{nodes:,}",
                f"{n_shards:,}",
                show_seconds(opening),
                f"{1000 * manifest:,.0f} ms",
                bold(f"{show_bytes(order)}, {taking}", order * GPUS > Cluster(nodes).memory),
                f"{samples:,.0f}/s, {show_bytes(4 * SEQ_LEN * samples)}/s",
                bold(f"{show_bytes(BLOCK * samples)}/s", BLOCK * samples > Cluster(nodes).storage),
            ]


def table(rows: Iterator[list[str]]) -> str:
    lines = [ROW.format(" | ".join(row)) for row in rows]
    return "\n".join([lines[0], "|" + "---|" * (lines[0].count("|") - 1), *lines[1:]])


def unit_rows(measured: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the measured rates."""
    yield ["job", "rate per core", "start", "memory", "last step: rate per core", "start", "memory"]
    for job in JOBS:
        row = [job]
        for step in ("ranks", "last"):
            found = measured["jobs"][job][step]
            rate = f"{show_count(found['per_s'])} samples/s" if job == "prepare" else f"{show_bytes(found['per_s'])}/s"
            row += [rate, f"{found['start_s']:.1f} s", show_bytes(found["memory"])]
        yield row if job not in ("chunk", "verify") else [*row[:4], "-", "-", "-"]


def overheads(measured: dict[str, Any]) -> str:
    over, calls, training = measured["overheads"], measured["calls"], measured["training"]
    rows = [
        ["per", "CPU time", "metadata calls"],
        ["source in every plan", f"{1e6 * over['source_s']:.0f} us", f"{calls['per_source']:.0f}"],
        ["task", f"{1000 * over['task_s']:.1f} ms", f"{calls['per_task']:.0f}"],
        ["reading the marker of a task", f"{1e6 * over['mark_s']:.0f} us", "1"],
        ["reading the index row of a document", f"{1e9 * over['index_row_s']:.0f} ns", "-"],
        ["position of a document in a shuffled order", f"{1e9 * over['ordered_s']:.0f} ns", "-"],
        ["position of a sample in an epoch", f"{1e9 * training['order_sample_s']:.0f} ns", "-"],
        ["opening a shard of a folder", f"{1e6 * training['open_shard_s']:.0f} us", "1"],
        ["first use of a shard", f"{1e6 * training['use_shard_s']:.0f} us", "2"],
        ["token of a batch", f"{1e9 * training['token_s']:.1f} ns", "-"],
    ]
    return table(iter(rows))


def page(measured: dict[str, Any]) -> str:
    """Return the text between the markers of docs/scale.md."""
    sections = {
        "Measurements": f"{measured['machine']}. CPU time, the best of several runs.\n\n{table(unit_rows(measured))}",
        "": overheads(measured),
        "Time": table(time_rows(measured)),
        "Tasks, memory and metadata, on 100 nodes": table(load_rows(measured)),
        "Training": table(training_rows(measured)),
    }
    return "\n".join((f"## {title}\n\n" if title else "") + text + "\n" for title, text in sections.items())


def write_page(text: str) -> None:
    head, rest = PAGE.read_text().split(START)
    PAGE.write_text(f"{head}{START}\n{text}\n{END}{rest.split(END)[1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure this machine again and write scale.json")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/scale.md")
    args = parser.parse_args()
    if args.measure:
        from scale_measure import measure

        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
    text = page(json.loads(MEASURED.read_text()))
    print(text)
    if args.write or args.measure:
        write_page(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
