"""Find the chat templates of a Hugging Face tokenizer, as transformers 4.57 does."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from fastpack.errors import spoken

SINGLE_FILE, FOLDER, CONFIG = "chat_template.jinja", "additional_chat_templates", "tokenizer_config.json"
DEFAULT, FOR_TOOLS = "default", "tool_use"


def choose_templates(folder: str | None, given: str | None) -> tuple[str, str | None]:
    """Return the source of the template, and of the one for conversations with tools if that is another one.

    folder: of the tokenizer, None for one without files. given: the path of a template, the name of one of the
    tokenizer's templates, or None for its own. Raises ValueError if there is no such template.
    """
    if given is not None and os.path.isfile(given):
        return _read(given), None
    named = {} if folder is None else tokenizer_templates(folder)
    option = spoken("chat_template")
    if given is not None:
        if given not in named:
            known = f"the tokenizer's templates are {', '.join(named)}" if named else "the tokenizer has no templates"
            raise ValueError(f"{option}: {given!r} is no file, and {known}")
        return named[given], None
    if DEFAULT not in named:
        known = f"has several templates ({', '.join(named)})" if named else "has no chat template"
        raise ValueError(f"{option} is needed: the tokenizer {known}")
    return named[DEFAULT], named.get(FOR_TOOLS)


def tokenizer_templates(folder: str) -> dict[str, str]:
    """Return the templates of a tokenizer's folder by name; those in files replace those in its configuration."""
    found: dict[str, str] = {}
    if os.path.isfile(path := os.path.join(folder, SINGLE_FILE)):
        found[DEFAULT] = _read(path)
    more = os.path.join(folder, FOLDER)
    for name in sorted(os.listdir(more)) if os.path.isdir(more) else ():
        if name.endswith(".jinja"):
            found[name.removesuffix(".jinja")] = _read(os.path.join(more, name))
    return found or _configured(os.path.join(folder, CONFIG))


def _configured(path: str) -> dict[str, str]:
    if not os.path.isfile(path):
        return {}
    value = json.loads(_read(path)).get("chat_template")
    entries = value if isinstance(value, list) else [] if value is None else [{"name": DEFAULT, "template": value}]
    templates = {entry["name"]: entry["template"] for entry in entries if _is_entry(entry)}
    if len(templates) < len(entries):
        raise ValueError(f"{path}: chat_template: expected a text, or a list of objects with name and template")
    return templates


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, Mapping) and all(isinstance(entry.get(key), str) for key in ("name", "template"))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
