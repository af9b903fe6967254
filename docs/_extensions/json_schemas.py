"""JSON schemas of what commands print with `--json`, and their tables, from `fastpack.cli.json_types`."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from fastpack.cli.json_types import JSON_TYPES
from fastpack.inspection.facts import InspectResult, Minimum

SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
Schema = dict[str, Any]


def command_schema(command: str) -> Schema:
    """Return the JSON schema (draft 2020-12) of the results of a command."""
    shapes = [value_schema(shape) for shape in JSON_TYPES[command]]
    schema = shapes[0] if len(shapes) == 1 else {"oneOf": shapes}
    title = f"Results of `fastpack {command} --json`"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def value_schema(hint: Any) -> Schema:
    """Return the schema of the values of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = value_schema(arguments[0])
        for extra in arguments[1:]:
            schema |= {"minimum": extra.value} if isinstance(extra, Minimum) else {"description": extra}
        return schema
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"oneOf": [value_schema(argument) for argument in arguments]}
    if origin is list:
        return {"type": "array", "items": value_schema(arguments[0])}
    if origin is dict:
        values = {} if arguments[1] is Any else {"additionalProperties": value_schema(arguments[1])}
        return {"type": "object", **values}
    if is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, InspectResult)):
        return object_schema(hint)
    return {"type": SCALARS[hint]}


def object_schema(shape: type[Any]) -> Schema:
    """Return the schema of an object with the fields of a class, and no others."""
    properties, required = {}, []
    for name, hint in get_type_hints(shape, include_extras=True).items():
        if get_origin(hint) is NotRequired:
            (hint,) = get_args(hint)
        else:
            required.append(name)
        properties[name] = value_schema(hint)
    docstring = (shape.__doc__ or "").splitlines()[:1]
    described = {"description": docstring[0]} if docstring and not docstring[0].startswith("dict(") else {}
    return {
        "type": "object",
        **described,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def command_section(command: str, schema: Schema) -> Iterator[str]:
    """Yield the lines of Markdown about one command."""
    yield f"## {command}\n"
    for shape in schema.get("oneOf", [schema]):
        if "oneOf" in schema:
            yield f"For {shape['description']}:\n"
        yield "| name | value | |\n|---|---|---|"
        yield from rows(shape, "")
        yield ""


def rows(shape: Schema, prefix: str) -> Iterator[str]:
    """Yield one row of a table per field, followed by the fields inside it."""
    for name, value in shape["properties"].items():
        optional = "" if name in shape["required"] else "*optional*: "
        description = f"{optional}{value.get('description', '')}".replace("|", "\\|")
        yield f"| `{prefix}{name}` | {kind_of(value)} | {description} |"
        for inner in value.get("oneOf", [value]):
            if "properties" in inner:
                yield from rows(inner, f"{prefix}{name}.")
            if "properties" in inner.get("items", {}):
                yield from rows(inner["items"], f"{prefix}{name}[].")
            if isinstance(values := inner.get("additionalProperties"), dict) and "properties" in values:
                yield from rows(values, f"{prefix}{name}.*.")


def kind_of(value: Schema) -> str:
    """Return a phrase for the values that are allowed."""
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    if "oneOf" in value:
        return " or ".join(map(kind_of, value["oneOf"]))
    if "items" in value:
        return f"array of {kind_of(value['items'])}"
    if isinstance(value.get("additionalProperties"), dict):
        return f"object of {kind_of(value['additionalProperties'])}"
    return str(value["type"])


def reference() -> str:
    """Return the sections of all commands as Markdown."""
    sections = (command_section(command, command_schema(command)) for command in JSON_TYPES)
    return "\n".join(line for section in sections for line in section)


def write_schemas(folder: Path) -> None:
    """Write the schema of every command to `folder/COMMAND.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    for command in JSON_TYPES:
        text = json.dumps(command_schema(command), indent=2, ensure_ascii=False)
        (folder / f"{command}.json").write_text(f"{text}\n", encoding="utf-8")
