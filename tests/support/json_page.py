"""docs/json.md, made of docs/schemas: `python tests/support/json_page.py` writes it anew, a test compares it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
SCHEMAS = DOCS / "schemas"
PAGE = DOCS / "json.md"

HEAD = """# Results as JSON

Every command takes `--json` and then prints its result as one JSON object on one line of stdout. Messages and progress
stay on stderr. So a script asks the exit code first, and then reads one line:

```console
$ printf '{"text": "Hello"}\\n{"text": "world"}\\n' > corpus.jsonl
$ fastpack index corpus.jsonl --json
{"path": "corpus.idx", "entries": 2, ... "written": true, "kept_existing": false, "dry_run": false}
$ fastpack info corpus.jsonl --json | python -c 'import json, sys; print(json.load(sys.stdin)["lines"])'
2
$ fastpack info absent.jsonl --json 2> errors.txt || echo "exit code $?, and nothing on stdout"
exit code 1, and nothing on stdout
$ cat errors.txt
fastpack: error: absent.jsonl: No such file or directory
```

- A command that fails (exit code 1) or is called wrongly (2) prints nothing on stdout; the reason is on stderr. Two
  tell of damage and print their object: `verify` (exit code 3, or 1 where one of several paths could not be looked at)
  and `validate --deep` (exit code 1).
- Sizes are in bytes and say so in their names (`bytes`, `source_bytes`); `tokens`, `documents`, `samples`, `lines` are
  counts; `seconds` are seconds; shares are parts of 1. Numbers of documents, lines and samples count from 0, and
  offsets are in bytes from the start of a file. Paths are as they were given, or relative to them.
- `null` says that something does not exist or is not known; a key is left out only where its line here says *optional*.
- `written`, `kept_existing` and `dry_run` have the same meaning everywhere: see `merge`.
- Other names may be added in a later version; what is there keeps its name and meaning. The schemas in
  `docs/schemas/` (JSON Schema, draft 2020-12) allow no other names, so that the tests see every change.
- What could move a terminal's cursor stands escaped in the JSON text (`\\u009b`); a parser gives back what it was.

The sections below are made from the schemas.
"""


def page() -> str:
    """The text of docs/json.md."""
    sections = ["\n".join(section(path.stem, json.loads(path.read_text()))) for path in sorted(SCHEMAS.glob("*.json"))]
    return "\n".join([HEAD, *sections])


def section(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """The lines about one command."""
    yield f"## {name}\n"
    yield f"[`schemas/{name}.json`](schemas/{name}.json)\n"
    for shape in schema.get("oneOf", [schema]):
        shape = resolved(shape, schema)
        if "oneOf" in schema:
            yield f"{shape['description'].capitalize()}:\n"
        yield "| name | value | |\n|---|---|---|"
        yield from rows(shape, schema, "")
        yield ""


def rows(shape: dict[str, Any], schema: dict[str, Any], before: str) -> Iterator[str]:
    """A row a name, those inside behind it."""
    for name, value in shape["properties"].items():
        told = value.get("description", "")
        inner = resolved(value, schema)
        told = told or inner.get("description", "")
        optional = "" if name in shape["required"] else "*optional*: "
        yield f"| `{before}{name}` | {kind_of(inner, schema)} | {optional}{told} |".replace("|  |", "| |")
        path = f"{before}{name}."
        for part in [inner, *(resolved(one, schema) for one in inner.get("oneOf", []))]:
            if "properties" in part:
                yield from rows(part, schema, path)
            items = resolved(part.get("items", {}), schema)
            if "properties" in items:
                yield from rows(items, schema, f"{before}{name}[].")
            values = part.get("additionalProperties")
            if isinstance(values, dict) and "properties" in resolved(values, schema):
                yield from rows(resolved(values, schema), schema, f"{before}{name}.*.")


def resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """What a reference refers to."""
    if "$ref" not in part:
        return part
    found: dict[str, Any] = schema["$defs"][part["$ref"].removeprefix("#/$defs/")]
    return found


def kind_of(value: dict[str, Any], schema: dict[str, Any]) -> str:
    """A phrase for the values that are allowed."""
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    if "oneOf" in value:
        return " or ".join(kind_of(resolved(one, schema), schema) for one in value["oneOf"])
    kinds = value["type"] if isinstance(value["type"], list) else [value["type"]]
    if "items" in value:
        inner = kind_of(resolved(value["items"], schema), schema)
        kinds = [f"array of {inner}" if kind == "array" else kind for kind in kinds]
    if isinstance(value.get("additionalProperties"), dict):
        inner = kind_of(resolved(value["additionalProperties"], schema), schema)
        kinds = [f"object of {inner}" if kind == "object" else kind for kind in kinds]
    return " or ".join(kinds)


if __name__ == "__main__":
    PAGE.write_text(page())
