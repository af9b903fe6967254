"""Completion scripts, tested in the shells themselves."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import Cli, actions, commands
from terminal import run_on_terminal

from fastpack.cli import main
from fastpack.cli.completion import FILES, FOLDERS, SHELLS, completion_script
from fastpack.cli.parser import GROUPS, build_parser

# Metavars of values that no shell can complete.
WORDS = {
    None, "N", "I", "ID", "E", "JQ", "CLASS", "A,B,C", "NAME:RE", "NAME:GLOB", "RE", "JSON", "NAME", "PAT,...",
    "PYTHON", "D", "GLOB", "TEXT", "URL", "SECONDS", "A", "SHARE", "NAME,...",
}  # fmt: skip

BASH = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p fastpack | grep -o '[^ ]* fastpack$' | cut -d' ' -f1)
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Completion functions finally call compadd; ^G ends a request.
ZSH = """
PROMPT= RPROMPT= ; unsetopt auto_list beep; bindkey -e
autoload -Uz compinit; compinit -u -D
source {script}
compadd() {{
    if [[ ${{@[1,(i)(-|--)]}} != *-(O|A|D)* ]]; then
        local -a hits; builtin compadd -A hits "$@"; print -rl -- $hits >> {found}
    fi
    builtin compadd "$@"
}}
bindkey '^I' complete-word
end_question() {{ BUFFER=; print END >> {found} }}
zle -N end_question; bindkey '^G' end_question
print ready
"""


def needs(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed: its completion is not tested")
    return path


def ask_bash(script: Path, lines: Sequence[str]) -> list[list[str]]:
    answers = []
    for line in lines:
        done = subprocess.run(
            [needs("bash"), "--norc", "-c", BASH, "bash", str(script), *line.split(" ")],
            capture_output=True,
            text=True,
            cwd=script.parent,
            timeout=60,
        )
        assert done.stderr == ""
        answers.append(done.stdout.split())
    return answers


def ask_zsh(script: Path, lines: Sequence[str]) -> list[list[str]]:
    """All requests in one session, because its start takes a second."""
    found, setup = script.with_name("found"), script.with_name("setup.zsh")
    setup.write_text(ZSH.format(script=script, found=found))
    seen = run_on_terminal(
        [needs("zsh"), "-f", "-i"],
        keys=f"cd {script.parent}; source {setup}\n",
        when=lambda text: "\nready" in text.replace("\r", ""),
        send="".join(f"{line}\t\x07" for line in lines) + "exit\n",
    )
    assert "rror" not in seen.text
    return [answer.split() for answer in found.read_text().split("END\n")[: len(lines)]]


def ask_fish(script: Path, lines: Sequence[str]) -> list[list[str]]:
    ask = "source $argv[1]; for line in $argv[2..]; complete -C $line; echo END; end"
    done = subprocess.run(
        [needs("fish"), "--no-config", "-c", ask, str(script), *lines],
        capture_output=True,
        text=True,
        cwd=script.parent,
        timeout=60,
    )
    assert done.stderr == ""
    texts = done.stdout.split("END\n")[: len(lines)]
    return [[answer.split("\t")[0] for answer in text.splitlines()] for text in texts]


ASK: dict[str, Callable[[Path, Sequence[str]], list[list[str]]]] = {"bash": ask_bash, "zsh": ask_zsh, "fish": ask_fish}


@pytest.fixture
def script(tmp_path: Path, shell: str) -> Path:
    path = tmp_path / f"fastpack.{shell}"
    path.write_text(completion_script(build_parser(), shell))
    (tmp_path / "corpus.jsonl").write_text("")
    (tmp_path / "cabinet").mkdir()
    return path


QUESTIONS = {  # line -> (expected completions, unexpected completions)
    "fastpack inf": ({"info"}, {"index"}),
    "fastpack create_raw": (set(), {"create_raw_index"}),
    "fastpack index --if-e": ({"--if-exists"}, {"--threads"}),
    "fastpack index --if-exists ": ({"skip", "error", "overwrite"}, {"corpus.jsonl"}),
    "fastpack pack --engine t": ({"tokenizers", "tiktoken"}, {"auto"}),
    "fastpack index cor": ({"corpus.jsonl"}, {"--json"}),
    "fastpack quickstart ca": ({"cabinet"}, {"corpus.jsonl"}),
    "fastpack pack --tokenizer cor": ({"corpus.jsonl"}, {"cabinet"}),
    "fastpack completion ": ({"bash", "zsh", "fish"}, {"corpus.jsonl"}),
    "fastpack merge --token-size ": ({"1", "2", "4"}, {"corpus.jsonl"}),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes(shell: str, script: Path) -> None:
    found = ASK[shell](script, list(QUESTIONS))
    assert len(found) == len(QUESTIONS)
    for (line, (wanted, unwanted)), words in zip(QUESTIONS.items(), found, strict=True):
        answers = {answer.rstrip("/") for answer in words}
        assert wanted <= answers, line
        assert not unwanted & answers, line


@pytest.mark.parametrize("shell", SHELLS)
def test_every_listed_name_and_option_is_in_the_script(shell: str, script: Path) -> None:
    words = set(
        script.read_text()
        .replace("'", " ")
        .replace('"', " ")
        .replace("|", " ")
        .replace(")", " ")
        .replace("(", " ")
        .split()
    )
    for name in (name for names in GROUPS.values() for name in names):
        assert any(word == name or word.startswith(f"{name}:") for word in words), name
    assert not {"create_raw_index", "pack_encoded_data", "lint", "--file-existence-policy", "--num-cpus"} & words
    for action in (action for command in commands().values() for action in actions(command)):
        for name in action.option_strings:
            if action.help != argparse.SUPPRESS:
                found = name.lstrip("-") if shell == "fish" else name
                assert any(found in word for word in words), name


def test_every_value_has_a_kind_of_completion() -> None:
    for parser in commands().values():
        for action in actions(parser):
            if action.nargs != 0 and not action.choices:
                assert action.metavar in FILES | FOLDERS | WORDS, action


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, cli: Cli) -> None:
    printed = cli("completion", shell)
    script = completion_script(build_parser(), shell)
    assert printed.out == script
    assert cli.json("completion", shell) == {"shell": shell, "script": script}
    with pytest.raises(SystemExit) as stopped:
        main(["completion", "tcsh"])
    assert stopped.value.code == 2
