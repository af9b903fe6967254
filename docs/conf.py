"""Configuration of the documentation site: `python -m sphinx -W docs docs/_build`."""

import sys
from pathlib import Path

from pygments.lexers.data import JsonLexer
from sphinx.application import Sphinx

import fastpack

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "fastpack"
author = "fastpack developers"
release = version = fastpack.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["api_pages", "command_reference", "json_reference", "token_format_table"]
exclude_patterns = ["_build", "_extensions"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_mock_imports = ["torch"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {
    "members": True,
    "inherited-members": "object, BaseException, Enum, dict, list, tuple, str, int",
}
napoleon_use_ivar = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"fastpack {release}"
html_copy_source = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    app.add_lexer("jsonl", JsonLexer)
