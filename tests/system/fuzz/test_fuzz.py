"""Every fuzz target for a second: its seeds, inputs that failed before, and mutants of both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from fuzz import TARGETS
from fuzz_harness import CORPUS, Edit, Target, structured, working_folder
from hypothesis import given, settings
from hypothesis import strategies as st

edits = st.lists(st.builds(Edit, st.integers(0, 63), st.integers(0, 65535), st.integers(0, 2**30 - 1)), max_size=6)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with working_folder() as folder:
        yield folder


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]


def test_seeds_pass_and_a_third_is_accepted(target: Target, folder: Path) -> None:
    seeds = target.seeds()
    assert max(map(len, seeds)) <= target.max_bytes
    assert sum(target.run(seed, folder) for seed in seeds) >= len(seeds) / 3


def test_inputs_that_failed_before_pass(folder: Path) -> None:
    found = sorted(CORPUS.glob("*/*"))
    assert found
    for path in found:
        TARGETS[path.parent.name].run(path.read_bytes(), folder)


def test_structured_mutants(target: Target, folder: Path) -> None:
    """A sample of the mutants; `fuzz.py` runs all."""
    source = random.Random(target.name)
    seeds = target.seeds()
    for seed in source.sample(seeds, min(2, len(seeds))):
        step = max(1, len(seed) // 8)
        mutants = list(islice(structured(seed, step), 1000))
        for data in source.sample(mutants, min(40, len(mutants))):
            target.run(data, folder)


@pytest.mark.parametrize("name", TARGETS)
@given(edits, st.integers(0, 255))
@settings(max_examples=60)
def test_mutants(name: str, folder: Path, changes: list[Edit], first: int) -> None:
    target = TARGETS[name]
    target.run(target.mutant(target.corpus(), changes, first), folder)
