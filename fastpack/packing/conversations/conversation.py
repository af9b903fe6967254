"""Recognise conversations in the rows of a source: messages, ShareGPT, prompt and completion, preference pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastpack.packing.conversations.chat_settings import ChatSettings

KINDS = {"messages": "messages (OpenAI)", "sharegpt": "ShareGPT", "pairs": "prompt and completion"}
ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "ipython"))
FROM = {  # ShareGPT's names of roles
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
    "function-response": "tool",
    "function_call": "assistant",
}
MESSAGES = ("messages", "conversations", "conversation")  # keys of messages, in this order
PAIRS = (("prompt", "completion"), ("prompt", "response"), ("instruction", "output"), ("instruction", "response"))
PREFERENCES = ("chosen", "rejected")
_SHOWN = 80


class Fault(ValueError):
    """The reason to leave out a row."""


class Conversation(NamedTuple):
    """The messages of a row as templates expect them. kind: a key of KINDS."""

    kind: str
    messages: list[dict[str, Any]]
    tools: Any


def read_conversation(row: Any, settings: ChatSettings) -> Conversation:
    """Return the conversation of a row. Raises Fault."""
    if not isinstance(row, dict):
        raise Fault(f"found {_shown(row)}, expected a JSON object")
    tools = _tools(row, settings.tools_field)
    if settings.preference is not None:
        kind, messages = _preference(row, settings.preference)
    elif (key := settings.messages_field) is not None:
        if key not in row:
            raise Fault(f"no {key!r} among its keys {_shown(list(row))}")
        kind, messages = _turns(row[key], key, row)
    else:
        kind, messages = _recognised(row)
    check_messages(messages)
    return Conversation(kind, messages, tools)


def columns_of(settings: ChatSettings) -> tuple[str, ...]:
    """Return the keys that `read_conversation` reads, for sources that are tables."""
    if settings.messages_field is not None:
        return settings.messages_field, "system", settings.tools_field
    others = [name for pair in PAIRS for name in pair]
    return tuple(dict.fromkeys((*MESSAGES, *others, *PREFERENCES, "system", "input", settings.tools_field)))


def _recognised(row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    for key in MESSAGES:
        if row.get(key) is not None:
            return _turns(row[key], key, row)
    for prompt, completion in PAIRS:
        if row.get(prompt) is not None and row.get(completion) is not None:
            return "pairs", [*_side(row, prompt, "user"), *_side(row, completion, "assistant")]
    raise Fault(
        f"no conversation among its keys {_shown(list(row))}: expected messages, conversations, or a prompt and a "
        "completion"
    )


def _side(row: Mapping[str, Any], key: str, role: str) -> list[Any]:
    """Return the messages of a prompt or completion: a text, or messages."""
    value = row[key]
    if isinstance(value, list):
        return _turns(value, key, {})[1]
    if not isinstance(value, str):
        raise Fault(f"{key!r} is {_shown(value)}, expected a text or a list of messages")
    if key == "instruction" and isinstance(row.get("input"), str) and row["input"]:
        value = f"{value}\n\n{row['input']}"  # Alpaca
    system = row.get("system") if role == "user" else None
    start = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    return [*start, {"role": role, "content": value}]


def _preference(row: Mapping[str, Any], chosen: str) -> tuple[str, list[Any]]:
    """Return one conversation of a preference pair, after the prompt if it has one."""
    for key in PREFERENCES:
        if row.get(key) is None:
            raise Fault(f"no {key!r} among its keys {_shown(list(row))}")
    answer = _side(row, chosen, "assistant")
    start = _side(row, "prompt", "user") if row.get("prompt") is not None else []
    return "messages" if isinstance(row[chosen], list) else "pairs", [*start, *answer]


def _turns(value: Any, key: str, row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        raise Fault(f"{key!r} is {_shown(value)}, expected a list of messages")
    if not value or "from" not in value[0] or "role" in value[0]:
        return "messages", value
    system = row.get("system")
    start = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    return "sharegpt", [*start, *(_from_sharegpt(turn, number) for number, turn in enumerate(value, 1))]


def _from_sharegpt(turn: Mapping[str, Any], number: int) -> dict[str, Any]:
    name, value = turn.get("from"), turn.get("value")
    if not isinstance(name, str) or name not in FROM:
        raise Fault(f"message {number}: unknown role {_shown(name)} (known: {', '.join(FROM)})")
    if name == "function_call" and isinstance(value, str):
        calls = _call(value, number)
        return {"role": "assistant", "content": "", "tool_calls": calls}
    return {"role": FROM[name], "content": value}


def _call(text: str, number: int) -> list[dict[str, Any]]:
    """Return the tool calls of a ShareGPT turn, which are JSON."""
    try:
        calls = json.loads(text)
    except (ValueError, RecursionError):
        raise Fault(f"message {number}: the function_call is not JSON") from None
    calls = calls if isinstance(calls, list) else [calls]
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        raise Fault(f"message {number}: the function_call has no name")
    return [{"type": "function", "function": call} for call in calls]


def check_messages(messages: list[Any]) -> None:
    """Raise Fault for a conversation that cannot be trained on."""
    if not messages:
        raise Fault("a conversation without messages")
    for number, message in enumerate(messages, 1):
        role = message.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise Fault(f"message {number}: unknown role {_shown(role)} (known: {', '.join(sorted(ROLES))})")
        if message.get("content") is None and not _has_other_content(message):
            raise Fault(f"message {number}: no content")
    if messages[-1]["role"] != "assistant":
        raise Fault(f"truncated: the last message is of the role {messages[-1]['role']}, expected assistant")


def _has_other_content(message: Mapping[str, Any]) -> bool:
    return any(
        message.get(key) for key in ("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking")
    )


def _tools(row: Mapping[str, Any], key: str) -> Any:
    """Return the tools of a row, also from JSON text."""
    tools = row.get(key)
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except (ValueError, RecursionError):
            raise Fault(f"{key!r} is not JSON: {_shown(tools)}") from None
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise Fault(f"{key!r} is {_shown(tools)}, expected a list of objects")
    return tools


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
