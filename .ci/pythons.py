"""Print the Pythons of this machine that fastpack supports, except this one: `VERSION PATH`, one a line, oldest first.

A Python is looked for under its name on the PATH and among the versions of pyenv, and is run to see whether it works:
pyenv's shims are there for versions that are not selected, and an interpreter without headers builds nothing. What was
found, and why something was not taken, is printed on stderr.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROBE = """
import ensurepip, os, platform, ssl, sys, sysconfig, venv
if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit("not CPython with a global interpreter lock")
if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    sys.exit("without its C headers")
print("%d.%d" % sys.version_info[:2])
"""


def supported() -> list[str]:
    """The versions that wheels are built for, such as "3.12", oldest first."""
    builds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["build"]
    return [re.sub(r"cp3(\d+)-\*", r"3.\1", build) for build in builds]


def candidates(version: str) -> list[str]:
    """The interpreters of that version that there may be, those on the PATH first."""
    on_path = [shutil.which(f"python{version}", path=folder) for folder in os.get_exec_path()]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    of_pyenv = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    return list(dict.fromkeys([path for path in on_path if path] + [str(path) for path in of_pyenv]))


def problem_of(path: str, version: str) -> str:
    """Why this interpreter cannot be used; empty if it can."""
    try:
        done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
    return "" if done.stdout.strip() == version else f"it says that it is {done.stdout.strip()}"


def find(version: str) -> str | None:
    """The first interpreter of that version that works."""
    for path in candidates(version):
        problem = problem_of(path, version)
        if not problem:
            return path
        print(f"python {version}: not {path}: {problem}", file=sys.stderr)
    return None


def main() -> int:
    own = "{}.{}".format(*sys.version_info)
    for version in supported():
        path = sys.executable if version == own else find(version)
        what = f"{path} (runs this script)" if version == own else path
        print(f"python {version}: {what or 'NOT RUN, as this machine has none that works'}", file=sys.stderr)
        if path and version != own:
            print(version, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
