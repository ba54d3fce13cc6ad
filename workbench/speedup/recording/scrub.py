"""Nothing of the recording machine stays in a log that is to be passed on: paths, host, user, environment.

Text is replaced in the raw lines, so that a line that held nothing private stays byte for byte as Spark wrote it.
`findings` reads the result with other eyes: patterns, and decoded fields.
"""

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

# Content nobody needs for facts about queries, full of paths; the keys stay, since readers may expect them.
EMPTIED = ("System Properties", "Classpath Entries", "Hadoop Properties", "Metrics Properties")
HOST_KEYS = {"Host", "spark.driver.host", "spark.driver.bindAddress"}
STAND_IN = "/data"
FORBIDDEN = {
    "file URI outside /data": re.compile(r"file:/++(?!data/)"),
    "absolute path outside /data": re.compile(r"(?<![\w./:)\]$])/(?!data/)[A-Za-z_][\w.-]*/[\w.-]"),
    "system folder": re.compile(r"/(?:root|home|tmp|usr|var|opt|etc|mnt|work|Users|private)/"),
    "user root": re.compile(r"(?<![\w.])root(?![\w.])"),
    "IP address": re.compile(r"(?<![\w.])(?!127\.0\.0\.1)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
}


def places(*, data: str, work: str, jars: Mapping[str, str] | None = None) -> dict[str, str]:
    """Folders of this machine that a log may name, and what stands for each.

    Parameters
    ----------
    data, work
        Folder of the tables, and of the session.
    jars
        Path of an engine's jar to its name.
    """
    found = {data: "/data/tables", work: "/data/recording"}
    found |= {path: f"/data/jars/{name}" for path, name in (jars or {}).items()}
    found |= {sys.prefix: "/data/python", sys.base_prefix + "/lib": "/data/python/lib"}
    if home := os.environ.get("JAVA_HOME"):
        found[home] = "/data/java"
    # Stages are named after the line of Python that began them.
    found[str(Path(__file__).parents[3])] = "/data/workbench"
    found[str(Path.cwd())] = "/data/cwd"
    resolved = {str(Path(place).resolve()): name for place, name in found.items() if place.startswith("/")}
    # A folder like / or /x would be found everywhere.
    return {place: name for place, name in (resolved | found).items() if place.count("/") >= 2}


def scrub(line: str, stand_ins: Mapping[str, str]) -> str:
    """One line of a log, with machine paths replaced and private sections emptied.

    Parameters
    ----------
    line
        A line as Spark wrote it, without its line end; the cut last line of a killed log is allowed.
    stand_ins
        Folder of the recording machine to the folder below `/data` that stands for it; longer ones are replaced first.

    Examples
    --------
    >>> scrub("Location: file:/home/ann/t/a, file:/home/an...", {"/home/ann/t": "/data/tables"})
    'Location: file:/data/tables/a, file:/data/...'
    """
    for place in sorted(stand_ins, key=len, reverse=True):
        line = line.replace(place, stand_ins[place])
        line = _without_cut(line, place)
    if line.startswith('{"Event":"SparkListenerEnvironmentUpdate"'):
        event = json.loads(line)
        event |= {key: {} for key in EMPTIED if key in event}
        return _compact(event)
    if line.startswith('{"Event":"SparkListenerApplicationStart"'):
        return _compact(json.loads(line) | {"User": "user"})
    return line


def _without_cut(line: str, place: str) -> str:
    """Spark cuts long paths in plans (`file:/home/ann/rec...`): what is left of the folder goes, too."""
    if "..." not in line:
        return line
    for end in range(len(place) - 1, place.index("/") + 1, -1):
        line = line.replace(f"{place[:end]}...", f"{STAND_IN}/...")
    return line


def own_names() -> tuple[str, ...]:
    """Words that a scrubbed log must not hold: this machine's and this user's name."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = ""
    # "user" and "localhost" stand for anybody's.
    return tuple(name for name in (socket.gethostname(), user) if name and name not in ("user", "localhost"))


def findings(line: str, *, names: tuple[str, ...] = ()) -> list[str]:
    """What a line still tells about the machine; `names` are words to object to (host, user)."""
    found = [f"{what}: {match.group(0)}" for what, pattern in FORBIDDEN.items() if (match := pattern.search(line))]
    for name in names:
        if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", line):
            found.append(f"name: {name}")
    try:
        event = json.loads(line)
    except ValueError:
        return found
    return found + [f"host: {value}" for value in _hosts(event) if value not in {"localhost", "127.0.0.1"}]


def _hosts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in HOST_KEYS:
                yield item
            else:
                yield from _hosts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _hosts(item)


def _compact(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
