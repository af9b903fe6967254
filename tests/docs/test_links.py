"""Links and anchors in the README, CONTRIBUTING and docs/*.md have targets, and the index lists every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)


def links(page: Path) -> list[str]:
    """Return the targets of the links of a page, except external ones."""
    text = re.sub(r"\[`([^`\n]*)`\]", r"[\1]", page.read_text())
    return [target for target in LINK.findall(CODE.sub("", text)) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub assigns to the headings of a page."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = next(i for i in range(len(found) + 1) if (f"{slug}-{i}" if i else slug) not in found)
        found.add(f"{slug}-{again}" if again else slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}: {path} does not exist"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}: {file.name} has {sorted(anchors(file))}"


def test_every_page_is_in_the_index_once() -> None:
    index = (DOCS / "index.md").read_text()
    trees = re.findall(r"^:::\{toctree\}\n(.*?)^:::", index, re.DOTALL | re.MULTILINE)
    entries = [line for tree in trees for line in tree.splitlines() if not line.startswith(":")]
    pages = sorted(page.stem for page in DOCS.glob("*.md") if page.name != "index.md")
    assert sorted(entries) == ["api/index", *pages]
    linked = {target.partition("#")[0] for target in links(DOCS / "index.md")}
    assert linked >= {f"{page}.md" for page in pages}, "docs/index.md links to every page"
    assert any(target.startswith("docs/") for target in links(ROOT / "README.md"))
