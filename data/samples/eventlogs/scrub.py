"""Nothing of the recording machine stays in a kept log: paths, host, user, environment.

Text is replaced in the raw lines, so that every line that held nothing private stays byte for byte as Spark wrote it.
`findings` reads the result with other eyes (patterns, decoded fields); `record.py` keeps no log that it objects to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Content nobody needs for facts about queries, full of paths; the keys stay, since readers may expect them.
EMPTIED = ("System Properties", "Classpath Entries", "Hadoop Properties", "Metrics Properties")
HOST_KEYS = {"Host", "spark.driver.host", "spark.driver.bindAddress"}
FORBIDDEN = {
    "file URI outside /data": re.compile(r"file:/++(?!data/)"),
    "absolute path outside /data": re.compile(r"(?<![\w./:)\]$])/(?!data/)[A-Za-z_][\w.-]*/[\w.-]"),
    "system folder": re.compile(r"/(?:root|home|tmp|usr|var|opt|etc|mnt|work|Users|private)/"),
    "user root": re.compile(r"(?<![\w.])root(?![\w.])"),
    "IP address": re.compile(r"(?<![\w.])(?!127\.0\.0\.1)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
}


def scrub(line: str, places: Mapping[str, str]) -> str:
    """One line of a log, with machine paths replaced and private sections emptied.

    Parameters
    ----------
    line
        A line as Spark wrote it, without its line end; the cut last line of a killed log is allowed.
    places
        Folder of the recording machine to the folder below `/data` that stands for it; longer ones are replaced first.
    """
    for place in sorted(places, key=len, reverse=True):
        line = line.replace(place, places[place])
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
    for end in range(len(place) - 1, place.index("/") + 1, -1):
        line = line.replace(f"{place[:end]}...", "/data/...")
    return line


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
