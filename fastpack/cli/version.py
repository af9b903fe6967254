"""`fastpack --version`: versions for a bug report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from fastpack.cli.output import put
from fastpack.version import __version__

_FEATURES = ("avx2", "avx512bw", "asimd", "sve")  # processor features that affect the speed of kernels


class VersionAction(argparse.Action):
    """Print versions and exit."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:  # noqa: ARG002
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        put(describe_versions())
        parser.exit(0)


def describe_versions() -> str:
    """Return the versions of fastpack, Python, NumPy and Numba, and processor features, without importing them."""
    import platform

    lines = [
        f"fastpack {__version__}",
        f"python {platform.python_version()} ({platform.machine()}, {platform.system()})",
    ]
    lines += [f"{package} {installed(package)}" for package in ("numpy", "numba")]
    return "\n".join([*lines, f"processor features: {' '.join(_features()) or 'unknown'}"])


def installed(package: str) -> str:
    """Return a version from the name of the metadata folder; importing importlib.metadata takes 50 ms."""
    import os
    import sys

    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{package}-") and name.endswith(".dist-info"):
                return name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return "not installed"


def _features() -> list[str]:
    try:
        with open("/proc/cpuinfo") as file:
            words = set(file.read().split())
    except OSError:
        return []
    return [feature for feature in _FEATURES if feature in words]
