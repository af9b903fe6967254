"""CONTRIBUTING.md is correct: its commands exist, its extras install the tools."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
CHECKS = re.findall(r"^\| [^|]+ \| (`.*`) \|$", TEXT, re.MULTILINE)
COMMANDS = [command for cell in CHECKS for command in re.findall(r"`([^`]+)`", cell)]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
CI = (ROOT / ".ci" / "run").read_text()


def test_one_command_installs_all_tools() -> None:
    (extras,) = re.findall(r"pip install -e '\.\[([a-z,]+)\]'", TEXT)
    needed = " ".join(requirement for extra in (*extras.split(","), "test") for requirement in EXTRAS[extra])
    assert "fastpack-llm[test]" in needed
    for tool in ("pytest", "ruff", "cython-lint", "import-linter", "mypy", "pyright", "sphinx", "asv"):
        assert re.search(rf"\b{tool}\b", needed), tool


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run_in_ci_and_their_files_exist(command: str) -> None:
    words = command.split()
    if words[0] == "python":
        assert f"{words[1]} {words[2]}" in CI or Path(ROOT, words[1]).is_file()
    elif words[0] == ".ci/run":
        assert Path(ROOT, words[0]).stat().st_mode & 0o111
        assert all(re.search(rf"^{stage}\(\) {{", CI, re.MULTILINE) for stage in words[1:])
    else:
        assert re.search(rf"^    {words[0]}\b", CI, re.MULTILINE), f"CI does not run {words[0]}"
    for word in words[1:]:
        if "/" in word and "*" not in word and "_build" not in word:
            assert Path(ROOT, word).exists(), word
