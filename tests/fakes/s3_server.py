"""An S3 server on this machine: moto's, in which a drawn share of the requests fails as networks and stores fail."""

from __future__ import annotations

import contextlib
import random
import threading
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

BUCKET = "bench"
KEY, SECRET = "AKIAWORKBENCHTESTS", "a+secret/of+the+tests+7f3a9c"


class Faults:
    """What goes wrong: `rate` of the requests from now on, or all after `left` more of them."""

    KINDS = ("refuse with 503", "refuse with 500", "cut before the work", "cut after the work", "cut in the answer")

    def __init__(self, seed: int = 7) -> None:
        self.rate = 0.0
        self.left: int | None = None
        self.done: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._guard = threading.Lock()

    def draw(self) -> str | None:
        with self._guard:
            self.done["requests"] += 1
            if self.left is not None:
                self.left -= 1
            fails = self._random.random() < self.rate or (self.left is not None and self.left < 0)
            kind = self._random.choice(self.KINDS) if fails else None
            if kind:
                self.done[kind] += 1
            return kind


def add_faults(app: Callable[..., Iterable[bytes]], faults: Faults) -> Callable[..., Iterable[bytes]]:
    """The application, with faults before or after it has done its work."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        kind = faults.draw()
        if kind is None:
            return app(environ, start_response)
        if kind.startswith("refuse"):
            start_response(f"{kind[-3:]} Fault", [("Content-Type", "text/plain"), ("Content-Length", "5")])
            return [b"fault"]
        if kind == "cut in the answer" and (body := b"".join(app(environ, start_response))):
            return cut(environ, body)
        if kind == "cut after the work":
            list(app(environ, lambda *_: lambda _: None))
        with contextlib.suppress(OSError):
            environ["werkzeug.socket"].shutdown(2)
        raise ConnectionAbortedError(kind)

    def cut(environ: dict[str, Any], body: bytes) -> Iterator[bytes]:
        yield body[: len(body) // 2]
        environ["werkzeug.socket"].shutdown(2)

    return answer


@contextlib.contextmanager
def serve(faults: Faults) -> Iterator[str]:
    """The address of a fresh server with an empty bucket."""
    import logging

    from werkzeug.serving import WSGIRequestHandler, make_server

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import DomainDispatcherApplication, create_backend_app

    class Quiet(WSGIRequestHandler):
        def log(self, *_: Any, **__: Any) -> None:
            """Say nothing."""

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    app = add_faults(DomainDispatcherApplication(create_backend_app), faults)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    # Buckets are kept in the process.
    urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/reset", method="POST")).close()
    try:
        yield address
    finally:
        server.shutdown()
        thread.join()


def client_environment(address: str) -> dict[str, str]:
    """What a user sets to reach it."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
