"""Fail if a tool of CI sees fewer files than git tracks.

`python .ci/guards.py tests` compares the test files that pytest collects with the tracked ones.
`python .ci/guards.py types MYPY_OUTPUT PYRIGHT_OUTPUT` compares the numbers of modules that the two type checkers
report (`mypy` and `pyright --stats`) with the numbers of tracked modules.

The working directory must be the root of a checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


class CollectedFiles:
    """A pytest plugin that records the collected test files, including those that skip themselves as a whole."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.Module):
            self.files.add(collector.path.relative_to(Path.cwd()).as_posix())


def tracked(*patterns: str) -> list[str]:
    """Return the files that git tracks for these patterns."""
    command = ["git", "ls-files", "-z", *patterns]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in found.split("\0") if name)


def check_tests() -> list[str]:
    """Return a sentence for each fault in the collection of tests."""
    plugin = CollectedFiles()
    code = pytest.main(["--collect-only", "-qqq", "--no-summary", "-p", "no:cacheprovider", "-m", ""], plugins=[plugin])
    faults = [] if code == 0 else [f"pytest --collect-only ended with exit code {int(code)}"]
    expected = {name for name in tracked("tests/") if re.fullmatch(r"test_.*\.py", Path(name).name)}
    faults += [f"{name} is tracked, but pytest does not collect it" for name in sorted(expected - plugin.files)]
    faults += [f"{name} is collected, but git does not track it" for name in sorted(plugin.files - expected)]
    return faults


def check_types(mypy_output: str, pyright_output: str) -> list[str]:
    """Return a sentence for each type checker that checked another number of modules."""
    modules = tracked("fastpack/*.py", "kernels/*.py", "tests/typing/*.py")
    stubs = tracked("fastpack/*.pyi", "kernels/*.pyi")
    stubbed = {name.removesuffix("i") for name in stubs}
    seen_by_mypy = [name for name in modules if name not in stubbed] + stubs  # mypy reads a stub instead of its module
    seen_by_pyright = [name for name in modules + stubs if not name.endswith("_nb.py")]
    return [
        *compare("mypy", r"(\d+) source files?\b", mypy_output, len(seen_by_mypy)),
        *compare("pyright", r"Total files checked: (\d+)", pyright_output, len(seen_by_pyright)),
    ]


def compare(tool: str, pattern: str, output: str, expected: int) -> list[str]:
    """Return a sentence if the number in the output of a tool is not the expected one."""
    found = re.findall(pattern, output)
    if not found:
        return [f"the output of {tool} does not contain the number of checked files"]
    if int(found[-1]) != expected:
        return [f"{tool} checked {found[-1]} modules, but git tracks {expected}"]
    return []


def main(arguments: list[str]) -> int:
    match arguments:
        case ["tests"]:
            faults = check_tests()
        case ["types", mypy_output, pyright_output]:
            faults = check_types(Path(mypy_output).read_text(), Path(pyright_output).read_text())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    for sentence in faults:
        print(sentence, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
