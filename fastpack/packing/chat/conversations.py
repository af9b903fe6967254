"""Read conversations from JSON Lines as Modalities does, and add the text of the chat template to each row."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastpack.documents.json_lines import scan_lines
from fastpack.errors import FastpackError
from fastpack.io import PathLike, Progress, map_bytes
from fastpack.packing.chat.chat_config import PARTITIONS, ChatConfig
from fastpack.packing.chat.template import TemplateFault, compile_template

_SHOWN = 200


class FaultyRow(FastpackError, ValueError):
    """A row that the chat template cannot be applied to; the message has file, line, byte and reason.

    path: the source. line: its number from 0. offset: of the line in the file, in bytes. reason: one phrase.
    """

    def __init__(self, path: str, line: int, offset: int, reason: str) -> None:
        super().__init__(f"{path}: line {line} at byte {offset}: {reason}")
        self.path, self.line, self.offset, self.reason = path, line, offset, reason

    def __reduce__(self) -> tuple[type[FaultyRow], tuple[str, int, int, str]]:
        return type(self), (self.path, self.line, self.offset, self.reason)


class _Fault(ValueError):
    """The reason to reject a row, without its position."""


def chat_rows(config: ChatConfig, progress: Progress | None) -> Iterator[tuple[str, bytes]]:
    """Yield (partition, JSON line to write, with its newline) for each row of the source, in order.

    The partition of each row is drawn as in Modalities, from a separate random stream. progress: called with (bytes
    done, bytes in all) of the source. Raises FaultyRow for the first row that is not an object, lacks its messages, has
    an unknown role, or on which the template fails; ValueError, immediately, for a template that cannot be compiled.
    """
    stream = random.Random(config.seed)
    render = compile_template(config.template, config.template_data, stream)
    return _converted(config, stream, _converter(config, render), progress)


def _converted(
    config: ChatConfig, stream: random.Random, convert: Callable[[bytes], bytes], progress: Progress | None
) -> Iterator[tuple[str, bytes]]:
    for line, (offset, data) in enumerate(_lines(config.src_path, progress)):
        partition = stream.choices(PARTITIONS, weights=config.weights)[0]
        try:
            yield partition, convert(data)
        except (_Fault, TemplateFault) as fault:
            raise FaultyRow(str(config.src_path), line, offset, str(fault)) from fault.__cause__


def _converter(config: ChatConfig, render: Callable[[list[Any]], str]) -> Callable[[bytes], bytes]:
    key, roles, dumps = config.messages_key, config.role_mapping, json.JSONEncoder(ensure_ascii=False).encode

    def convert(line: bytes) -> bytes:
        row = _parsed(line)
        messages = _messages(row, key)
        for position, turn in enumerate(messages):
            _map_roles(turn, position, roles)
        row["chat"] = render(messages)
        try:
            return (dumps(row) + "\n").encode()
        except UnicodeEncodeError as error:
            found = ascii(error.object[error.start])[1:-1]
            raise _Fault(f"the lone surrogate {found} cannot be written as UTF-8") from None
        except RecursionError:
            raise _Fault("nested too deeply") from None

    return convert


def _parsed(line: bytes) -> dict[str, Any]:
    if not line.strip():
        raise _Fault("an empty line, expected a JSON object")
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at byte {error.start} of the line"
        raise _Fault(f"not UTF-8: {found}") from None
    except (ValueError, RecursionError) as error:
        raise _Fault(f"not JSON: {'nested too deeply' if isinstance(error, RecursionError) else error}") from None
    if not isinstance(row, dict):
        raise _Fault(f"found {_shown(row)}, expected a JSON object")
    return row


def _messages(row: dict[str, Any], key: str) -> list[Any]:
    if key not in row:
        raise _Fault(f"no {key!r} among its keys {_shown(list(row))}")
    messages = row[key]
    if messages in ("", {}):  # empty: Modalities treats both as no turns
        return []
    if not isinstance(messages, list):
        raise _Fault(f"{key!r} is {_shown(messages)}, expected a list of turns")
    return messages


def _map_roles(turn: Any, position: int, roles: Mapping[str, str]) -> None:
    """Replace the values of `role` and `from` in the turn, which is also in the row that is written."""
    if not isinstance(turn, dict):
        raise _Fault(f"turn {position} is {_shown(turn)}, expected an object")
    for key in ("role", "from"):
        if key in turn:
            role = turn[key]
            if not isinstance(role, str) or role not in roles:
                known = ", ".join(map(repr, roles))
                raise _Fault(f"turn {position}: {key} is {_shown(role)}, not in the role_mapping ({known})")
            turn[key] = roles[role]


def _lines(path: PathLike, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    r"""Yield (byte offset, bytes without line end) of each line; `\n`, `\r\n` and `\r` end one, as in text files."""
    data = map_bytes(path)
    for rows in scan_lines(data, progress):
        for offset, length in rows.tolist():
            yield from _split_at_cr(offset, data[offset : offset + length].tobytes())


def _split_at_cr(offset: int, line: bytes) -> Iterator[tuple[int, bytes]]:
    r"""Split a line that ends in `\n` or at the end of the file at each `\r`."""
    if b"\r" not in line:
        yield offset, line
        return
    lines = line.split(b"\r")
    for i, piece in enumerate(lines):
        if piece or i < len(lines) - 1:  # an empty last piece belongs to `\r\n`, or ends the file
            yield offset, piece
        offset += len(piece) + 1


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
