"""A store in this process (moto's S3), and a proxy that injects faults."""

from __future__ import annotations

import http.client
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

SMALL_BLOCK = 1 << 16  # bytes; the fixture small_blocks divides objects into such blocks
Fault = Literal["503", "404", "403", "cut", "short", "slow", "stall", "flip", "lost"]
Chooser = Callable[[int, str, str], Fault | None]  # (number of the request, from 1; method; path) -> fault


def frequent_faults(number: int, method: str, _: str) -> Fault | None:
    """Return 503 for every third request, "cut" for every seventh body, "short" for every eleventh."""
    if number % 3 == 0:
        return "503"
    if method == "GET" and number % 7 == 0:
        return "cut"
    return "short" if method == "GET" and number % 11 == 0 else None


@dataclass
class FaultyProxy:
    """A proxy server that counts requests and injects faults into responses.

    A number is returned as the status without asking the store; "cut" closes the connection in the middle of the body;
    "short" declares and sends half of it; "slow" sends a byte per second; "stall" sends half of the body and then
    nothing; "flip" flips a bit in the middle of the body; "lost" forwards the request, but responds with 503. delay:
    latency in seconds of every response. sent: bytes of bodies sent. caches: cache objects and serve their ranges,
    since moto reads a whole object for each range. google: clients use Google's XML API, which differs from S3's in
    keys and some headers.
    """

    backend: str
    choose: Chooser = lambda *_: None
    requests: list[tuple[str, str, Fault | None]] = field(default_factory=list)
    delay: float = 0.0
    sent: int = 0
    caches: bool = False
    cached: dict[str, tuple[dict[str, str], bytes]] = field(default_factory=dict)
    google: bool = False
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy = proxy
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, method: str, path: str) -> Fault | None:
        with self._lock:
            fault = self.choose(len(self.requests) + 1, method, path)
            self.requests.append((method, path, fault))
            return fault

    def count(self, method: str) -> int:
        """Return the number of requests, except those for checksum files."""
        return sum(1 for found, path, _ in self.requests if found == method and not path.endswith(".fpsum"))

    def note_sent(self, n_bytes: int) -> None:
        with self._lock:
            self.sent += n_bytes

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy

    def log_message(self, *_: Any) -> None:
        pass

    def _forward(self) -> None:
        body = self._body()
        fault = self.proxy.take(self.command, self.path)
        time.sleep(self.proxy.delay)
        if fault in ("503", "404", "403"):
            self._answer(int(fault), {}, b"")
            return
        requested_range = self.headers.get("Range") if self.proxy.caches and self.command == "GET" else None
        if requested_range is not None:
            headers, content = self.proxy.cached.get(self.path) or self._fetch()
            start, end = (int(number) for number in requested_range.removeprefix("bytes=").split("-"))
            selected = content[start : end + 1]
            about = {"Content-Range": f"bytes {start}-{start + len(selected) - 1}/{len(content)}"}
            self._answer(206, headers | about, selected, fault)
            return
        if self.command != "HEAD":
            self.proxy.cached.pop(self.path, None)
        status, headers, content = self._request({}, body)
        if fault == "lost":
            status, headers, content = 503, {}, b""
        self._answer(status, headers, content, fault)

    def _fetch(self) -> tuple[dict[str, str], bytes]:
        _, headers, content = self._request({"range": "bytes=0-"})
        kept = {name: value for name, value in headers.items() if not name.lower().startswith("content-")}
        self.proxy.cached[self.path] = kept, content
        return kept, content

    def _request(self, instead: dict[str, str], body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        where = urlsplit(self.proxy.backend)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in {*_HOP, *instead}} | instead
        if self.proxy.google:
            kept = {name.lower(): value for name, value in kept.items()} | {"authorization": _KEY}
            if kept.pop("x-goog-if-generation-match", None) == "0":
                kept["if-none-match"] = "*"
        # A timeout must close the connection too: an unclosed socket is a warning in whichever test runs next.
        with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=SECONDS)) as backend:
            backend.request(self.command, self.path, body, kept)
            answer = backend.getresponse()
            content = answer.read()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        return answer.status, headers, content

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 (http.server's names)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, headers: dict[str, str], content: bytes, fault: Fault | None = None) -> None:
        if fault == "short":
            content = content[: len(content) // 2]
        if fault == "flip" and content:
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        length = headers.pop("Content-Length", None) or headers.pop("content-length", None)
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            # A HEAD response declares the length of the omitted body.
            self.send_header("Content-Length", str(length if self.command == "HEAD" and length else len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self._send(content, fault)
        except OSError:  # the client disconnected
            self.close_connection = True

    def _send(self, content: bytes, fault: Fault | None) -> None:
        if fault == "cut":
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
        elif fault == "stall":
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.proxy.closing.wait(60)
            self.close_connection = True
        elif fault == "slow":
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(1)
        else:
            self.proxy.note_sent(len(content))
            self.wfile.write(content)


SECONDS = 300  # after which a request to moto fails; a loaded machine may take minutes
_KEY = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"
_HOP = ("connection", "transfer-encoding", "host", "content-length-ignored", "date", "server")
socketserver.BaseServer.allow_reuse_address = True


class Store:
    """moto's S3, with a bucket `bucket`."""

    def __init__(self) -> None:
        import boto3
        from botocore.config import Config
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        _, port = self._server.get_host_and_port()
        self.url = f"http://127.0.0.1:{port}"
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        patient = Config(connect_timeout=SECONDS, read_timeout=SECONDS)
        self._client = boto3.client("s3", endpoint_url=self.url, config=patient, **keys)
        self._client.create_bucket(Bucket="bucket")

    def put(self, name: str, content: bytes) -> str:
        """Upload an object; return its URL."""
        self._client.put_object(Bucket="bucket", Key=name, Body=content)
        return f"s3://bucket/{name}"

    def get(self, name: str) -> bytes:
        with closing(self._client.get_object(Bucket="bucket", Key=name)["Body"]) as body:
            return body.read()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._client.close()
        self._server.stop()
