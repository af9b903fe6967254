"""The completion scripts of bash, zsh and fish, each made of the same list of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

TOP_OPTIONS = {"--help": "show help and exit", "--version": "print versions and processor features, and exit"}
DATA = "the word before a command in Modalities"

_BASH = """\
# Completion of fastpack for bash: eval "$(fastpack completion bash)"
_fastpack() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} first=1 kind=file words= IFS=$' \\t\\n'
    if [[ $cur == = ]]; then cur=
    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    [[ ${COMP_WORDS[1]} == data && $COMP_CWORD -gt 1 ]] && first=2
    COMPREPLY=()
    if [[ $COMP_CWORD -eq $first ]]; then
        words="@NAMES@"
        [[ $first -eq 1 ]] && words="$words data help @TOP@"
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return
    fi
    case ${COMP_WORDS[first]} in
@COMMANDS@
        help) kind=choice words="@NAMES@" ;;
        *) return ;;
    esac
    if [[ $cur == -* && $kind != value* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
        return
    fi
    IFS=$'\\n'
    case ${kind#value } in
        file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")) ;;
        folder) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur")) ;;
        choice) IFS=$' \\t\\n'; COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    esac
}
complete -F _fastpack fastpack
"""

_ZSH = """\
#compdef fastpack
# Completion of fastpack for zsh: eval "$(fastpack completion zsh)" after compinit, or a file _fastpack in $fpath
_fastpack() {
    local -a commands others
    local command
    commands=(
@DESCRIBED@
    )
    others=(@OTHERS@)
    if (( CURRENT > 2 )) && [[ $words[2] == data ]]; then
        shift words
        (( CURRENT-- ))
        others=()
    fi
    if (( CURRENT == 2 )); then
        _describe -t commands 'command' commands -- others
        return
    fi
    command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
@COMMANDS@
        help) _describe -t commands 'command' commands ;;
    esac
}
if [[ $funcstack[1] == _fastpack ]]; then _fastpack "$@"; else compdef _fastpack fastpack; fi
"""

_FISH = """\
# Completion of fastpack for fish: fastpack completion fish | source
function __fastpack_command
    set -l words (commandline -opc)
    set -e words[1]
    test "$words[1]" = data; and set -e words[1]
    test (count $words) -gt 0; and echo $words[1]
end
function __fastpack_first
    test (count (commandline -opc)) -eq 1
end
function __fastpack_needs_command
    test -z (__fastpack_command)
end
function __fastpack_in
    contains -- (__fastpack_command) $argv
end
complete -c fastpack -e
complete -c fastpack -f
"""


class Value(NamedTuple):
    """What an option or a place takes: a file, a folder, one of some words, or (kind "word") what cannot be guessed."""

    kind: str
    choices: tuple[str, ...] = ()
    many: bool = False


class Option(NamedTuple):
    """An option: its names with hyphens, those with underscores, its help, and its value, if it takes one."""

    names: tuple[str, ...]
    old_names: tuple[str, ...]
    help: str
    value: Value | None


class Command(NamedTuple):
    """A command: its name and aliases, its help, its options and places."""

    names: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    places: tuple[Value, ...]


def bash(commands: Sequence[Command]) -> str:
    """The script of bash."""
    names = " ".join(name for command in commands for name in command.names)
    cases = "\n".join(_bash_case(command) for command in commands)
    script = _BASH.replace("@COMMANDS@", cases).replace("@NAMES@", names)
    return script.replace("@TOP@", " ".join(TOP_OPTIONS))


def _bash_case(command: Command) -> str:
    lines = [f"        {'|'.join(command.names)})"]
    long = [name for option in command.options for name in option.names]
    lines.append(f'            local options="{" ".join(long)}"')
    lines.append('            [[ $cur == --*_* ]] && options="' + " ".join(_old_names(command)) + '"')
    place = command.places[0] if command.places else None
    lines.append(f"            {_bash_value(place)}")
    lines.append("            case $prev in")
    for option in command.options:
        if option.value is not None:
            names = "|".join(option.names + option.old_names)
            lines.append(f"                {names}) {_bash_value(option.value, 'value ')} ;;")
    return "\n".join([*lines, "            esac ;;"])


def _old_names(command: Command) -> Iterator[str]:
    for option in command.options:
        yield from option.old_names


def _bash_value(value: Value | None, prefix: str = "") -> str:
    kind = "word" if value is None else value.kind
    words = f' words="{" ".join(value.choices)}"' if value is not None and value.choices else ""
    return f"kind='{prefix}{kind}'{words}"


def zsh(commands: Sequence[Command]) -> str:
    """The script of zsh."""
    described = [_quoted(f"{name}:{_title(command, name)}") for command in commands for name in command.names]
    others = {"data": DATA, "help": "explain a command", **TOP_OPTIONS}
    script = _ZSH.replace("@DESCRIBED@", "\n".join(f"        {entry}" for entry in described))
    script = script.replace("@OTHERS@", " ".join(_quoted(f"{name}:{text}") for name, text in others.items()))
    return script.replace("@COMMANDS@", "\n".join(map(_zsh_case, commands)))


def _zsh_case(command: Command) -> str:
    specs = [spec for option in command.options for spec in _zsh_option(option)]
    specs += [_zsh_place(place) for place in command.places]
    arguments = "".join(f" \\\n                {_quoted(spec)}" for spec in specs)
    return f"        {'|'.join(command.names)})\n            _arguments -s -S{arguments} ;;"


def _zsh_option(option: Option) -> Iterator[str]:
    """A specification of `_arguments` for each name: (excluded names)name[help]:value:action."""
    text = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    for name in option.names:
        takes = "" if option.value is None else f":value:{_zsh_action(option.value)}"
        equals = "=" if option.value is not None and name.startswith("--") else ""
        yield f"*{name}{equals}[{text}]{takes}"


def _zsh_place(value: Value) -> str:
    return f"{'*' if value.many else ''}:value:{_zsh_action(value)}"


def _zsh_action(value: Value) -> str:
    if value.choices:
        return f"({' '.join(value.choices)})"
    return {"file": "_files", "folder": "_files -/"}.get(value.kind, " ")


def fish(commands: Sequence[Command]) -> str:
    """The script of fish."""
    lines = [
        f"complete -c fastpack -n __fastpack_first -a data -d {_fish_quoted(DATA)}",
        "complete -c fastpack -n __fastpack_first -a help -d 'explain a command'",
        *(
            f"complete -c fastpack -n __fastpack_first -l {name[2:]} -d {_fish_quoted(text)}"
            for name, text in TOP_OPTIONS.items()
        ),
    ]
    for command in commands:
        for name in command.names:
            text = _fish_quoted(_title(command, name))
            lines.append(f"complete -c fastpack -n __fastpack_needs_command -a {name} -d {text}")
            lines.append(f"complete -c fastpack -n '__fastpack_in help' -a {name} -d {text}")
        inside = f"complete -c fastpack -n '__fastpack_in {' '.join(command.names)}'"
        lines += [f"{inside} {_fish_option(option)}" for option in command.options]
        lines += [f"{inside} {_fish_value(place)}" for place in command.places[:1]]
    return _FISH + "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    takes = [] if option.value is None else ["-r", _fish_value(option.value)]
    return " ".join([*names, *filter(None, takes), "-d", _fish_quoted(option.help)])


def _fish_value(value: Value) -> str:
    if value.choices:
        return f"-f -a '{' '.join(value.choices)}'"
    if value.kind == "folder":
        return "-f -a '(__fish_complete_directories)'"
    return "-F" if value.kind == "file" else "-f"


def _title(command: Command, name: str) -> str:
    return command.help if name == command.names[0] else f"another name of {command.names[0]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
