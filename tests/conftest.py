"""Fixtures every test folder uses."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Cli, kept_kernels
from hypothesis import HealthCheck, settings

from fastpack import kernels

GOLDEN = Path(__file__).parent / "golden"

# Machines are shared: a slow example is no failure, and the same examples run everywhere.
# FASTPACK_EXAMPLES=5 asks for fewer of them, FASTPACK_EXAMPLES=1000 for more, which differ from run to run.
EXAMPLES = 40
WANTED = int(os.environ.get("FASTPACK_EXAMPLES") or EXAMPLES)
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=WANTED <= EXAMPLES,
    max_examples=WANTED,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The cache folder of the user stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTPACK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(params=kernels.BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test once on every kernel backend that is installed."""
    if request.param == "numba" and importlib.util.find_spec("numba") is None:
        pytest.skip("numba is not installed")
    with kept_kernels():
        kernels.use(request.param)
        yield request.param


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of files written by the real peers."""
    assert GOLDEN.is_dir(), "tests/golden is missing: the checkout is incomplete"
    return GOLDEN


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process: `cli("info", path, code=1).err`, or `cli.json("info", path)`."""
    return Cli(capsys)
