"""Event log of a session: find it, remove machine details on request, compress it."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import zstandard

from workbench.core import files
from workbench.core.errors import RunFailedError
from workbench.spark import releases

# Sections full of paths that queries do not need; they are emptied, but their keys stay for readers.
EMPTIED = ("System Properties", "Classpath Entries", "Hadoop Properties", "Metrics Properties")
HOST_KEYS = {"Host", "spark.driver.host", "spark.driver.bindAddress"}
STAND_IN = "/data"
FORBIDDEN = {
    "file URI outside /data": re.compile(r"file:/++(?!data/)"),
    "absolute path outside /data": re.compile(r"(?<![\w./:)\]$])/(?!data/)[A-Za-z_][\w.-]*/[\w.-]"),
    "system folder": re.compile(r"/(?:root|home|tmp|usr|var|opt|etc|mnt|work|Users|private)/"),
    # Spark's tags of jobs hold "-root-".
    "user root": re.compile(r"(?<![\w.-])root(?![\w.-])"),
    "IP address": re.compile(r"(?<![\w.])(?!127\.0\.0\.1)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
}
# Names that tell nothing; root has a pattern of its own.
NEUTRAL_NAMES = ("user", "localhost", "root")
LEVEL = 19
# Plans repeat from pass to pass, megabytes apart. Java's and Python's readers take windows up to 2^27 by default.
WINDOW_LOG = 26
MAX_NOTED = 3


def map_machine_paths(*, data: str, work: str, jars: Mapping[str, str] | None = None) -> dict[str, str]:
    """Replacement of each folder of this machine that a log may name."""
    stand_ins = {data: "/data/tables", work: "/data/recording"}
    stand_ins |= {path: f"/data/jars/{name}" for path, name in (jars or {}).items()}
    stand_ins |= {str(release.folder): "/data/spark" for release in releases.RELEASES.values()}
    stand_ins |= {sys.prefix: "/data/python", sys.base_prefix + "/lib": "/data/python/lib"}
    if home := os.environ.get("JAVA_HOME"):
        stand_ins[home] = "/data/java"
    # Stage names hold the line of Python that started them.
    stand_ins[str(Path(__file__).parents[3])] = "/data/workbench"
    stand_ins[str(Path.cwd())] = "/data/cwd"
    resolved = {str(Path(place).resolve()): name for place, name in stand_ins.items() if place.startswith("/")}
    # A folder like / or /x would match everywhere.
    return {place: name for place, name in (resolved | stand_ins).items() if place.count("/") >= 2}


def scrub_line(line: str, stand_ins: Mapping[str, str]) -> str:
    """One line of a log, with machine paths replaced and private sections emptied.

    `line`: A line as Spark wrote it, without its line end; it may be the cut last line of a killed log.
    `stand_ins`: Folder below `/data` by folder of the recording machine; longer folders are replaced first.

    >>> scrub_line("Location: file:/home/ann/t/a, file:/home/an...", {"/home/ann/t": "/data/tables"})
    'Location: file:/data/tables/a, file:/data/...'
    """
    for place in sorted(stand_ins, key=len, reverse=True):
        line = line.replace(place, stand_ins[place])
        line = _replace_cut_path(line, place)
    if line.startswith('{"Event":"SparkListenerEnvironmentUpdate"'):
        event = json.loads(line)
        event |= {key: {} for key in EMPTIED if key in event}
        return _format_event(event)
    if line.startswith('{"Event":"SparkListenerApplicationStart"'):
        return _format_event(json.loads(line) | {"User": "user"})
    return line


def _replace_cut_path(line: str, place: str) -> str:
    """Also replace folders that Spark has cut short in plans (`file:/home/ann/rec...`)."""
    if "..." not in line:
        return line
    for end in range(len(place) - 1, place.index("/") + 1, -1):
        line = line.replace(f"{place[:end]}...", f"{STAND_IN}/...")
    return line


def get_machine_names() -> tuple[str, ...]:
    """Names of this machine and this user, which a scrubbed log must not hold."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = ""
    return tuple(name for name in (socket.gethostname(), user) if name and name not in NEUTRAL_NAMES)


def list_machine_traces(line: str, *, names: tuple[str, ...] = ()) -> list[str]:
    """Traces of the machine in a line; `names` are forbidden words (host, user)."""
    traces = [f"{kind}: {match.group(0)}" for kind, pattern in FORBIDDEN.items() if (match := pattern.search(line))]
    for name in names:
        if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", line):
            traces.append(f"name: {name}")
    try:
        event = json.loads(line)
    except ValueError:
        return traces
    return traces + [
        f"host: {value}" for value in _iterate_host_values(event) if value not in {"localhost", "127.0.0.1"}
    ]


def _iterate_host_values(value: Any) -> Iterator[str]:
    """Yield the values of all host fields in a JSON document."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in HOST_KEYS:
                yield item
            else:
                yield from _iterate_host_values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_host_values(item)


def _format_event(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


def find_session_log(events: Path) -> Path:
    """The event log that a session wrote."""
    logs = [path for path in events.iterdir() if path.is_file() and not path.name.startswith(".")]
    if len(logs) != 1 or logs[0].suffix == ".inprogress":
        raise RunFailedError("the session left no closed event log", found=[path.name for path in logs] or "nothing")
    return logs[0]


def write_session_log(log: Path, path: Path, *, stand_ins: Mapping[str, str] | None) -> list[str]:
    """Write a log as one zstd frame.

    `stand_ins`: From `map_machine_paths`; null keeps the log unchanged.

    Returns: Up to three traces of this machine that remain; empty without `stand_ins`.
    """
    notes: dict[str, int] = {}
    settings = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW_LOG, enable_ldm=True)
    with files.replace_atomically(path) as temporary, temporary.open("wb") as file:
        compressor = zstandard.ZstdCompressor(compression_params=settings)
        with compressor.stream_writer(file, size=-1, closefd=False) as stream:
            for line in _iterate_log_lines(log, stand_ins, notes):
                stream.write(line)
    if len(notes) > MAX_NOTED:
        return [*list(notes)[:MAX_NOTED], f"and {len(notes) - MAX_NOTED} more"]
    return list(notes)


def _iterate_log_lines(log: Path, stand_ins: Mapping[str, str] | None, notes: dict[str, int]) -> Iterator[bytes]:
    """Yield the log's lines, scrubbed if `stand_ins` is given.

    `notes` counts the traces of the machine that are left.
    """
    with log.open("rb") as file:
        if stand_ins is None:
            yield from file
            return
        names = get_machine_names()
        for line in file:
            text = scrub_line(line.rstrip(b"\n").decode("utf-8"), stand_ins)
            for finding in list_machine_traces(text, names=names):
                notes[finding] = notes.get(finding, 0) + 1
            yield text.encode() + b"\n"
