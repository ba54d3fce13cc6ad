"""A package index of our own: tiny wheels made as zip files, listed as JSON or HTML, served on the loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from workbench.indicators.stacks.stack_sets import Package, Stack, StackSet, build_stack

Form = Literal["json", "html"]
LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class Made:
    """A wheel on the index, and what the index tells of it; null is not told."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    tag: str = "py3-none-any"
    uploaded: str | None = LONG_AGO
    yanked: bool = False
    requires_python: str | None = None
    body: str = ""
    tells_size: bool = True
    tells_hash: bool = True
    ships_bytecode: bool = False
    runs_at_start: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.tag}.whl"

    @cached_property
    def content(self) -> bytes:
        return wheel_bytes(self)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def wheel_bytes(made: Made) -> bytes:
    """The same wheel, byte for byte, each time."""
    import io

    info = f"{made.name}-{made.version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {made.name}\nVersion: {made.version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in made.requires)
    texts = {
        f"{made.name}/__init__.py": f"VERSION = {made.version!r}\n{made.body}",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {made.tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{made.name}-tool = {made.name}:VERSION.upper\n",
    }
    if made.runs_at_start:
        texts[f"{made.name}.pth"] = f"import os; {made.runs_at_start}\n"
    if made.ships_bytecode:
        texts[f"{made.name}/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"] = "old"
    texts[f"{info}/RECORD"] = "".join(map(_record_line, texts.items())) + f"{info}/RECORD,,\n"
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
    return raw.getvalue()


def _record_line(item: tuple[str, str]) -> str:
    name, text = item
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(text.encode())}\n"


def html_page(wheels: Iterable[Made], base: str = "") -> str:
    """A page of the Simple API as HTML, with the attributes that some indexes add."""
    lines = []
    for one in wheels:
        facts = [f'data-upload-time="{one.uploaded}"'] if one.uploaded else []
        facts += ['data-yanked=""'] if one.yanked else []
        facts += [f'data-requires-python="{one.requires_python.replace(">", "&gt;")}"'] if one.requires_python else []
        fragment = f"#sha256={one.sha256}" if one.tells_hash else ""
        lines.append(f'<a href="{base}{one.file_name}{fragment}" {" ".join(facts)}>{one.file_name}</a><br>')
    return "<!DOCTYPE html><html><body>\n" + "\n".join(lines) + "\n</body></html>"


def json_page(wheels: Iterable[Made], base: str = "") -> str:
    """The same as JSON."""
    listed = []
    for one in wheels:
        entry: dict[str, Any] = {"filename": one.file_name, "url": base + one.file_name, "yanked": one.yanked}
        entry["hashes"] = {"sha256": one.sha256} if one.tells_hash else {}
        entry["requires-python"] = one.requires_python
        if one.uploaded:
            entry["upload-time"] = one.uploaded
        if one.tells_size:
            entry["size"] = len(one.content)
        listed.append(entry)
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "a", "files": listed})


def local_index(folder: Path, wheels: Iterable[Made], *, pages: bool = True) -> Path:
    """A folder laid out as an index; without pages uv does not read it, we do."""
    by_name: dict[str, list[Made]] = {}
    for one in wheels:
        by_name.setdefault(one.name, []).append(one)
    for name, listed in by_name.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        for one in listed:
            (place / one.file_name).write_bytes(one.content)
        if pages:
            (place / "index.html").write_text(html_page(listed))
    return folder


@dataclass
class Served:
    """A running index: its address, what it was asked, and what it answers."""

    url: str
    wheels: list[Made]
    form: Form
    password: str | None = None
    tells_length: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def with_password(self) -> str:
        return self.url.replace("://", f"://ann:{self.password}@")


@contextmanager
def served(wheels: Iterable[Made], form: Form = "json", password: str | None = None) -> Iterator[Served]:
    """Serve an index until the block ends; `answers` overrides what a path gets (status, text)."""
    index = Served("", list(wheels), form, password)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing on stderr."""

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            index.asked.append((self.command, self.path))
            status, kind, raw = _answer(index, self.path, self.headers)
            self.send_response(status)
            self.send_header("content-type", kind)
            if index.tells_length or body:
                self.send_header("content-length", str(len(raw)))
            self.end_headers()
            if body:
                self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(index: Served, path: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
    if index.password is not None:
        expected = "Basic " + base64.b64encode(f"ann:{index.password}".encode()).decode()
        if headers.get("authorization") != expected:
            return 401, "text/plain", b"no"
    if path in index.answers:
        status, text = index.answers[path]
        return status, "text/html", text.encode()
    parts = path.strip("/").split("/")
    if parts[0] == "simple" and len(parts) == 2:
        listed = [one for one in index.wheels if one.name.replace("_", "-") == parts[1]]
        if not listed:
            return 404, "text/plain", b"not here"
        if index.form == "json":
            return 200, "application/vnd.pypi.simple.v1+json", json_page(listed, "/files/").encode()
        return 200, "text/html", html_page(listed, "/files/").encode()
    for one in index.wheels:
        if parts == ["files", one.file_name]:
            return 200, "application/octet-stream", one.content
    return 404, "text/plain", b"not here"


# bbb 1 needs aaa 1, bbb 2 needs aaa 2; ccc has one version that both allow.
SMALL = (
    Made("aaa", "1.0"),
    Made("aaa", "1.1"),
    Made("aaa", "2.0"),
    Made("bbb", "1.0", ("aaa<2",)),
    Made("bbb", "2.0", ("aaa>=2", "ccc")),
    Made("ccc", "1.0"),
)


def lock(versions: Mapping[str, str], name: str = "", *, hash_of: str = "", **facts: Any) -> Stack:
    """A stack of these versions that nobody solved; the hash is that of the version, unless it is given."""
    packages = [
        Package(name=one, version=version, hashes=("sha256:" + (hash_of * 64 or _sha256(version)),), **facts)
        for one, version in versions.items()
    ]
    return build_stack(packages, python="3.11.7", platform="linux_x86_64", name=name)


def stack_set(stacks: Iterable[Stack], **more: Any) -> StackSet:
    given: dict[str, Any] = {"requirements": (), "free": ("numpy",), "decision": "grid", "uv_version": "0.13.8"}
    given |= {"python": "3.11.7", "platform": "linux_x86_64", "stacks": tuple(stacks)}
    return StackSet.model_validate(given | more)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def own_settings(monkeypatch: pytest.MonkeyPatch, place: Path, cache: Path | None = None) -> None:
    """Nothing of the user's: no index, no caches, no configuration."""
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache or place / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(place / "uv"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
