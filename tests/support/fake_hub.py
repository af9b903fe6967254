"""A server with the parts of the Hugging Face Hub's interface that fastpack uses."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SHA = "5" * 40


@dataclass
class FakeHub:
    """Repositories and the requests for them.

    files: `datasets/ORG/NAME` or `models/ORG/NAME` -> path -> content. token: required of every request, if given.
    """

    files: dict[str, dict[str, bytes]]
    token: str | None = None
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def environment(self, home: Any) -> dict[str, str]:
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}


@contextmanager
def serve_hub(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve the repositories on this machine."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield hub
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_: Any) -> None:
        pass

    def _respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        way = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"{self.command} {way}")
        if self.hub.token is not None and self.headers.get("authorization") != f"Bearer {self.hub.token}":
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif way.startswith("api/"):
            self._api(way.removeprefix("api/").split("/"), body)
        else:
            self._resolve(way.split("/"))

    def _api(self, words: list[str], body: bytes) -> None:
        kind, repository = words[0], "/".join(words[1:3])
        files = self.hub.files.get(f"{kind}/{repository}")
        if files is None:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        if words[3:4] == ["revision"] or len(words) == 3:
            found: Any = {"id": repository, "sha": SHA, "siblings": [{"rfilename": name} for name in files]}
        elif words[3] == "paths-info":
            paths = parse_qs(body.decode())["paths"]
            found = [_entry(path, files[path]) for path in paths if path in files]
            folders = [path for path in paths if any(name.startswith(f"{path}/") for name in files)]
            found += [{"type": "directory", "path": path, "oid": SHA} for path in folders]
        else:
            found = _tree(files, "/".join(words[5:]), "recursive=True" in self.path or "recursive=true" in self.path)
        self._send(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def _resolve(self, words: list[str]) -> None:
        kind = "datasets" if words[0] == "datasets" else "models"
        words = words[1:] if kind == "datasets" else words
        content = self.hub.files.get(f"{kind}/{'/'.join(words[:2])}", {}).get("/".join(words[4:]))
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": SHA, "Accept-Ranges": "bytes"}
        if (wanted := self.headers.get("Range")) is not None:
            start, _, end = wanted.removeprefix("bytes=").partition("-")
            part = content[int(start) : int(end) + 1 if end else None]
            headers["Content-Range"] = f"bytes {start}-{int(start) + len(part) - 1}/{len(content)}"
            self._send(206, part, headers)
        else:
            self._send(200, content, headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = _respond  # noqa: N815 (http.server's names)


def _entry(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}


def _tree(files: dict[str, bytes], folder: str, recursive: bool) -> list[dict[str, Any]]:
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, Any]] = {}
    for path, content in files.items():
        if not path.startswith(prefix):
            continue
        first, _, rest = path[len(prefix) :].partition("/")
        if rest and not recursive:
            entries[first] = {"type": "directory", "path": prefix + first, "oid": SHA}
        else:
            entries[path] = _entry(path, content)
    return list(entries.values())
