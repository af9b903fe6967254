"""`fastpack doctor`: what this installation has, what is missing, and what is wrong."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import NamedTuple

from fastpack.cli.options import Commands, new_command
from fastpack.cli.output import emit
from fastpack.cli.version import describe_versions, installed

_EXTRA = re.compile(r"""(?P<package>[\w.-]+)[^;]*;.*extra == ["'](?P<extra>[\w-]+)["']""")
_DEVELOPMENT = ("test", "check", "bench", "docs")
_VARIABLES = ("FASTPACK_", "NUMBA_CACHE_DIR", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "AWS_ENDPOINT_URL")


class Finding(NamedTuple):
    """A fact about the installation; `problem`: what is wrong, and what to do."""

    name: str
    value: str
    problem: str = ""


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `doctor`."""
    parser = new_command(
        commands,
        "doctor",
        run=run_doctor,
        help="check this installation",
        about="Show versions, kernel backends, extras, the cache folder and access to a store, and what is missing "
        "or wrong; exit code 1 for a problem.",
        example="fastpack doctor s3://bucket/corpus",
    )
    parser.add_argument("url", metavar="URL", nargs="?", help="a folder or an object of a store, to test the access")
    return [parser]


def run_doctor(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if there is a problem."""
    findings = list(_findings(args.url))
    problems = [f"{one.name}: {one.problem}" for one in findings if one.problem]
    extras = _extras()
    lines = [*describe_versions().splitlines(), *(f"{one.name}: {one.value}" for one in findings)]
    lines += [f"extra {name}: {', '.join(packages)}" for name, packages in sorted(extras.items())]
    lines += [f"problem: {problem}" for problem in problems] or ["no problem found"]
    facts = {one.name: one.value for one in findings}
    emit(args, {"versions": describe_versions(), "facts": facts, "extras": extras, "problems": problems}, lines)
    return 1 if problems else 0


def _findings(url: str | None) -> Iterator[Finding]:
    yield _kernels()
    yield _numba()
    yield _cache()
    yield Finding("memory available", _available_memory())
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processors", str(processors))
    for name in sorted(os.environ):
        if name.startswith(_VARIABLES):
            yield Finding(name, os.environ[name])
    if url is not None:
        yield _store(url)


def _kernels() -> Finding:
    from fastpack import kernels

    missing: dict[str, str] = {}
    for module in sorted({modules["cython"] for modules in kernels.TABLE.values()}):
        try:
            importlib.import_module(f"fastpack.kernels.{module}")
        except ImportError as error:
            missing[module] = str(error)
    if missing:
        problem = f"{', '.join(missing)} cannot be imported ({next(iter(missing.values()))}); reinstall fastpack"
        return Finding("compiled kernels", "missing", problem)
    return Finding("compiled kernels", "complete")


def _numba() -> Finding:
    try:
        importlib.import_module("numba")
    except ModuleNotFoundError as error:
        if error.name == "numba":
            return Finding("numba kernels", "not available: numba is not installed")
        return Finding("numba kernels", "broken", f"importing numba fails: {error}")
    except ImportError as error:
        return Finding("numba kernels", "broken", f"importing numba fails: {error}")
    return Finding("numba kernels", "available")


def _cache() -> Finding:
    import shutil

    from fastpack.errors import JobError
    from fastpack.io.block_cache import cache_limit
    from fastpack.io.cache_folder import cache_folder

    try:
        folder, limit = cache_folder(), cache_limit()
    except (JobError, OSError, ValueError) as error:
        return Finding("cache folder", "not usable", str(error))
    free = shutil.disk_usage(folder).free
    value = f"{folder} (limit {limit / 1e9:.1f} GB, {free / 1e9:.1f} GB free)"
    if not os.access(folder, os.W_OK):
        return Finding("cache folder", value, f"{folder} cannot be written: set FASTPACK_CACHE_DIR")
    return Finding("cache folder", value)


def _available_memory() -> str:
    """Return the memory that new data can take, page cache included."""
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        available, cached = (int(fields[name].split()[0]) * 1024 for name in ("MemAvailable", "Cached"))
    except (OSError, KeyError, ValueError):
        return "unknown"
    return f"{available / 1e9:.1f} GB ({cached / 1e9:.1f} GB of it page cache)"


def _store(url: str) -> Finding:
    from fastpack.io import as_path, is_remote

    if not is_remote(url):
        return Finding("store", url, "this is no URL of a store, such as s3://bucket/folder")
    try:
        where = as_path(url)
        found = "a folder" if where.is_dir() else "an object" if where.is_file() else ""
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        return Finding("store", url, " ".join(str(error).split()))
    return Finding("store", f"{url}: {found}") if found else Finding("store", url, "nothing is there, or not visible")


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra with their versions."""
    try:
        requirements = requires("fastpack-llm") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_EXTRA.match, requirements)):
        package, extra = match["package"], match["extra"]
        if extra not in _DEVELOPMENT:
            found.setdefault(extra, []).append(f"{package} {installed(package.replace('-', '_').replace('.', '_'))}")
    return found
