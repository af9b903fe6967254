"""A Sphinx extension with the directive `json-results`: a section for each command, from the types of its results.

The JSON schemas are written to `schemas/` of the site.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from json_schemas import reference, write_schemas
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("json-results", JsonResultsDirective)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}


def finish(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        write_schemas(Path(app.outdir, "schemas"))


class JsonResultsDirective(SphinxDirective):
    """Insert the sections of all commands."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(reference(), allow_section_headings=True)
