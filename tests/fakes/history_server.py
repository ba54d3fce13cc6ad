"""Spark's own history server in a process of its own, and a fake of its API for faults that it cannot make."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import threading
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.server_start import wait_until_answered

READY_S = 90


@contextlib.contextmanager
def serve_spark_history(
    spark_home: Path, logs: Path, port: int, more: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Spark's history server over a folder of event logs. `more`: Variables, such as of its Java."""
    options = {
        "spark.history.fs.logDirectory": logs.as_uri(),
        "spark.history.ui.port": port,
        "spark.history.fs.update.interval": "1s",
        "spark.history.store.maxDiskUsage": "100m",
    }
    variables = {
        **os.environ,
        **more,
        "SPARK_HOME": str(spark_home),
        "SPARK_HISTORY_OPTS": " ".join(f"-D{name}={value}" for name, value in options.items()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
    }
    command = [spark_home / "bin" / "spark-class", "org.apache.spark.deploy.history.HistoryServer"]
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_answered(process, f"http://127.0.0.1:{port}/api/v1/applications", READY_S)
        yield process
    finally:
        process.kill()
        process.wait(20)


def list_applications(port: int) -> list[dict[str, Any]]:
    """What the server lists."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


Fault = Callable[[str, int], str]
"""From a path and how often it was asked before to what goes wrong: "", "500", "cut", or a text to answer."""


class FakeHistoryServer:
    """The API with applications by id; `asked` has the paths of all requests."""

    def __init__(self, applications: list[dict[str, Any]], logs: Mapping[str, Path], fault: Fault) -> None:
        self.applications = applications
        self.logs = logs
        self.fault = fault
        self.asked: list[str] = []

    def answer(self, target: str) -> tuple[int, bytes]:
        """Status and body."""
        parts = urlsplit(target)
        words = parts.path.removeprefix("/api/v1/applications").strip("/").split("/")
        if words[-1] == "logs":
            memory = io.BytesIO()
            with zipfile.ZipFile(memory, "w") as archive:
                archive.write(self.logs[words[0]], self.logs[words[0]].name)
            return 200, memory.getvalue()
        if words != [""]:
            found = next((one for one in self.applications if one["id"] == words[0]), None)
            return (200, json.dumps(found).encode()) if found else (404, b"no such app")
        since = parse_qs(parts.query).get("minDate", [""])[0]
        chosen = [one for one in self.applications if one["attempts"][0]["startTime"] >= since]
        return 200, json.dumps(chosen).encode()


@contextlib.contextmanager
def serve_fake(
    applications: list[dict[str, Any]], logs: Mapping[str, Path], fault: Fault = lambda _path, _count: ""
) -> Iterator[tuple[str, FakeHistoryServer]]:
    """The fake on a free port: its URL, and itself."""
    fake = FakeHistoryServer(applications, logs, fault)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wrong = fake.fault(self.path, fake.asked.count(self.path))
            fake.asked.append(self.path)
            status, body = fake.answer(self.path)
            if wrong not in ("", "cut"):
                status, body = (int(wrong), b"") if wrong.isdigit() else (200, wrong.encode())
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if wrong == "cut" else body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", fake
    finally:
        server.shutdown()
        server.server_close()
