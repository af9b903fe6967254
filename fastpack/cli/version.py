"""`fastpack --version`: what a bug report needs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from fastpack.cli.output import put
from fastpack.version import __version__

_FEATURES = ("avx2", "avx512bw", "asimd", "sve")  # of the processor, where a kernel's speed depends on them


class VersionAction(argparse.Action):
    """Print versions and exit."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:  # noqa: ARG002
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        put(describe_versions())
        parser.exit(0)


def describe_versions() -> str:
    """fastpack, Python, numpy, numba and the processor, a line each; nothing heavy is imported for it."""
    import platform

    lines = [
        f"fastpack {__version__}",
        f"python {platform.python_version()} ({platform.machine()}, {platform.system()})",
    ]
    lines += [f"{package} {_installed(package)}" for package in ("numpy", "numba")]
    return "\n".join([*lines, f"processor features: {' '.join(_features()) or 'unknown'}"])


def _installed(package: str) -> str:
    """The version, by the name of the folder of metadata: importlib.metadata takes 50 ms to import."""
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
