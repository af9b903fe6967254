"""Print the supported Pythons of this machine, except this one: `VERSION PATH`, one per line, oldest first.

Pythons are searched on the PATH and among the versions of pyenv and uv. Each one is run to check it: pyenv has shims
for versions that are not selected, and an interpreter without headers cannot build extensions. The results, with the
reason for each rejected interpreter, are printed on stderr.
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
    """Return the versions for which wheels are built, such as "3.12", oldest first."""
    builds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["build"]
    return [re.sub(r"cp3(\d+)-\*", r"3.\1", build) for build in builds]


def candidates(version: str) -> list[str]:
    """Return possible interpreters of this version, those on the PATH first."""
    on_path = [shutil.which(f"python{version}", path=folder) for folder in os.get_exec_path()]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    of_pyenv = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    of_uv = sorted(data.glob(f"uv/python/cpython-{version}.*/bin/python{version}"), reverse=True)
    return list(dict.fromkeys([path for path in on_path if path] + [str(path) for path in (*of_pyenv, *of_uv)]))


def problem_of(path: str, version: str) -> str:
    """Return the reason why this interpreter cannot be used, or an empty string."""
    try:
        done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
    return "" if done.stdout.strip() == version else f"it reports version {done.stdout.strip()}"


def find(version: str) -> str | None:
    """Return the first usable interpreter of this version."""
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
        what = f"{path} (this interpreter)" if version == own else path
        print(f"python {version}: {what or 'NOT RUN: no usable interpreter found'}", file=sys.stderr)
        if path and version != own:
            print(version, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
