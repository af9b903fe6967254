"""The guards of CI fail when a tool sees fewer files than git tracks: each fault is created in a small checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GUARDS = Path(__file__).parents[1] / ".ci" / "guards.py"
FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\nnorecursedirs = [".*"]\n',
    "tests/test_a.py": "def test_a(): assert True\n",
    "tests/build/test_b.py": "def test_b(): assert True\n",
    "tests/test_c.py": "import pytest\npytest.importorskip('no_such_module')\n",
    "fastpack/__init__.py": "",
    "fastpack/build/one.py": "",
    "kernels/scan_nb.py": "",
    "kernels/scan_cy.pyi": "",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


def guard(checkout: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(GUARDS), *arguments]
    env = os.environ | {"PYTHONWARNINGS": "ignore"}  # pytest itself warns with some versions of Python
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_all_tracked_test_files_are_collected(checkout: Path) -> None:
    assert guard(checkout, "tests") == (0, "")


def test_a_folder_that_pytest_skips_by_default_is_reported(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    assert guard(checkout, "tests") == (1, "tests/build/test_b.py is tracked, but pytest does not collect it\n")


def test_an_untracked_test_file_is_reported(checkout: Path) -> None:
    (checkout / "tests" / "test_new.py").write_text("def test_new(): assert True\n")
    assert guard(checkout, "tests") == (1, "tests/test_new.py is collected, but git does not track it\n")


def test_a_collection_error_fails(checkout: Path) -> None:
    (checkout / "tests" / "test_a.py").write_text("import no_such_module\n")
    code, message = guard(checkout, "tests")
    assert (code, message) == (1, "pytest --collect-only ended with exit code 2\n")


@pytest.mark.parametrize(
    ("by_mypy", "by_pyright", "message"),
    [
        (4, 3, ""),
        (3, 3, "mypy checked 3 modules, but git tracks 4\n"),
        (4, 2, "pyright checked 2 modules, but git tracks 3\n"),
    ],
)
def test_the_numbers_of_checked_modules_are_compared(
    checkout: Path, by_mypy: int, by_pyright: int, message: str
) -> None:
    mypy, pyright = checkout / "mypy.txt", checkout / "pyright.txt"
    mypy.write_text(f"Success: no issues found in {by_mypy} source files\n")
    pyright.write_text(f"Total files parsed and bound: 900\nTotal files checked: {by_pyright}\n")
    assert guard(checkout, "types", str(mypy), str(pyright)) == (1 if message else 0, message)


def test_output_without_a_number_fails(checkout: Path) -> None:
    silent = checkout / "silent.txt"
    silent.write_text("\n")
    code, message = guard(checkout, "types", str(silent), str(silent))
    assert (code, message.count("does not contain the number of checked files")) == (1, 2)
