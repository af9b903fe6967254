"""A Sphinx extension with the directive `token-formats`: the table of token formats, made from the registry."""

from __future__ import annotations

from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fastpack.tokens.formats import FORMATS
from fastpack.tokens.token_file import TokenFormat


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("token-formats", TokenFormatsDirective)
    return {"parallel_read_safe": True}


class TokenFormatsDirective(SphinxDirective):
    """Insert the table of token formats."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(table()))


def table() -> Iterator[str]:
    """Yield the lines of the table as Markdown."""
    yield "| format | files | read | write | document boundaries | dtypes | what is lost |"
    yield "|---|---|---|---|---|---|---|"
    for row in FORMATS:
        yield f"| {' | '.join(cells(row))} |"


def cells(row: TokenFormat) -> list[str]:
    """Return the cells of a format."""
    return [
        f"`{row.name}`",
        row.description,
        "yes",
        "yes" if row.create is not None else "no",
        "stored" if row.stores_documents else "with `--eos-token-id`",
        ", ".join(row.dtypes) or "those of the shards",
        row.loses,
    ]
