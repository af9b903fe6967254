"""Generate docs/json.md from docs/schemas: `python tests/support/json_page.py`. A test compares the result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
SCHEMAS = DOCS / "schemas"
PAGE = DOCS / "json.md"

HEAD = """# JSON output

With `--json`, every command prints its result as one JSON object on one line of stdout. Messages and progress go to
stderr. A script checks the exit code and then reads one line:

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

- A command that fails (exit code 1) or is used incorrectly (2) prints nothing on stdout; the reason is on stderr. Two
  commands report damage and print their object: `verify` (exit code 3, or 1 if one of several paths could not be
  checked) and `validate --deep` (exit code 1).
- Sizes are in bytes, as their names say (`bytes`, `source_bytes`); `tokens`, `documents`, `samples` and `lines` are
  counts; `seconds` are seconds; shares are fractions of 1. Numbers of documents, lines and samples count from 0, and
  offsets are in bytes from the start of a file. Paths are as given, or relative to the given ones.
- `null` means that a value does not exist or is unknown. Only keys marked *optional* can be absent.
- `written`, `kept_existing` and `dry_run` have the same meaning everywhere: see `merge`.
- Later versions can add names; existing names keep their meaning. The schemas in `docs/schemas/` (JSON Schema, draft
  2020-12) allow no other names, so the tests notice every change.
- Control characters are escaped in the JSON text (`\\u009b`); a parser restores them.

The sections below are generated from the schemas.
"""


def page() -> str:
    """Return the text of docs/json.md."""
    sections = ["\n".join(section(path.stem, json.loads(path.read_text()))) for path in sorted(SCHEMAS.glob("*.json"))]
    return "\n".join([HEAD, *sections])


def section(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the section of one command."""
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
    """Yield a row for each name, followed by the rows of its nested names."""
    for name, value in shape["properties"].items():
        description = value.get("description", "")
        inner = resolved(value, schema)
        description = description or inner.get("description", "")
        optional = "" if name in shape["required"] else "*optional*: "
        yield f"| `{before}{name}` | {kind_of(inner, schema)} | {optional}{description} |".replace("|  |", "| |")
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
