"""Fuzzing of every reader: `python tests/system/fuzz/fuzz.py TARGET... [--seconds N]`; see README.md."""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
from pathlib import Path

import fuzz_packed
import fuzz_shards
import fuzz_webdataset
from fuzz_harness import Target, random_edits, structured, working_folder

TARGETS = {t.name: t for t in (*fuzz_packed.TARGETS, *fuzz_shards.TARGETS, *fuzz_webdataset.TARGETS)}


def report(target: Target, data: bytes, error: BaseException, found: Path) -> None:
    found.mkdir(parents=True, exist_ok=True)
    path = found / f"{target.name}-{len(list(found.iterdir())):03d}"
    path.write_bytes(data)
    print(f"{target.name}: {type(error).__name__}: {str(error)[:300]}\n  kept as {path}", flush=True)


def fuzz(target: Target, seconds: float, seed: int, found: Path, max_findings: int = 10) -> int:
    """Run structured mutants for at most half of the time, then random ones; return the number of findings."""
    corpus, source, n_runs, n_accepted, findings = target.corpus(), random.Random(seed), 0, 0, set[str]()
    started = time.monotonic()
    with working_folder() as folder:

        def one(data: bytes) -> None:
            nonlocal n_runs, n_accepted
            (folder / "input").write_bytes(data)  # remains if the process crashes
            n_runs += 1
            try:
                n_accepted += target.run(data, folder)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                kind = f"{type(error).__name__} {_place(error)}"
                if kind not in findings:
                    findings.add(kind)
                    report(target, data, error, found)

        mutants = (data for seed in source.sample(corpus, len(corpus)) for data in structured(seed))
        for data in mutants:
            one(data)
            if time.monotonic() - started > seconds / 2 or len(findings) >= max_findings:
                break
        while time.monotonic() - started < seconds and len(findings) < max_findings:
            one(target.mutant(corpus, random_edits(source), source.randrange(len(corpus))))
    print(f"{target.name}: {n_runs} runs, {n_accepted} accepted, {len(findings)} findings", flush=True)
    return len(findings)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""


def coverage_guided(target: Target, arguments: list[str]) -> None:
    """Run atheris; arguments: a folder for its corpus, then options of libFuzzer."""
    import atheris  # type: ignore[import-not-found]

    corpus = Path(arguments[0])
    corpus.mkdir(parents=True, exist_ok=True)
    for i, data in enumerate(target.corpus()):
        (corpus / f"seed-{i:03d}").write_bytes(data)
    for holder, name in target.trace:
        setattr(holder, name, atheris.instrument_func(getattr(holder, name)))
    with working_folder() as folder:
        atheris.Setup([sys.argv[0], *arguments], lambda data: target.run(data, folder) and None)
        atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default all: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="of the random mutants")
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="folder for failing inputs")
    parser.add_argument("--atheris", nargs=argparse.REMAINDER, metavar="CORPUS", help="coverage-guided, one target")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    faulthandler.enable()
    if options.atheris:
        coverage_guided(TARGETS[options.targets[0]], options.atheris)
        return 0
    chosen = [TARGETS[name] for name in options.targets or TARGETS]
    return 1 if sum([fuzz(target, options.seconds, options.seed, options.found) for target in chosen]) else 0


if __name__ == "__main__":
    sys.exit(main())
