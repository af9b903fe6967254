"""Pages of HTML as the tests read them."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Parse a page into its texts and attributes; check that elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def check(self) -> None:
        """Check that the page loads and runs nothing, and describes each graph in words."""
        identities = [attrs["id"] for _, attrs in self.elements if "id" in attrs]
        assert len(identities) == len(set(identities))
        for tag, attrs in self.elements:
            assert tag not in ("script", "iframe", "object", "embed", "base", "form", "a")
            assert not [name for name in attrs if name.startswith("on")]
            assert attrs.get("href", "data:,") == "data:,"
            assert (attrs.get("src") or "data:image/jpeg;base64,").startswith("data:image/jpeg;base64,")
            assert tag != "img" or attrs["alt"]
            if tag == "svg" and "aria-hidden" not in attrs:
                assert attrs["role"] == "img"
                assert set((attrs["aria-labelledby"] or "").split()) <= set(identities)
        assert "url(" not in "".join(self.texts)
        assert "@import" not in "".join(self.texts)
        policy = [attrs["content"] for _, attrs in self.elements if attrs.get("http-equiv")]
        assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
        levels = [int(tag[1]) for tag, _ in self.elements if tag in ("h1", "h2", "h3")]
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert {"header", "main", "footer"} <= {tag for tag, _ in self.elements}
        assert "viewport" in [attrs.get("name") for tag, attrs in self.elements if tag == "meta"]
