"""The event log of a session as it is kept: scrubbed on request, compressed hard, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import zstandard

from workbench import files
from workbench.errors import RunFailedError
from workbench.speedup.recording import scrub

LEVEL = 19
# Plans repeat from pass to pass, megabytes apart. Java's and Python's readers take windows up to 2^27 by default.
WINDOW_LOG = 26
MAX_NOTED = 3


def find(events: Path) -> Path:
    """The event log that a session wrote.

    Raises
    ------
    RunFailedError
        There is none, or it was not closed: Spark did not come to its end.
    """
    found = [path for path in events.iterdir() if path.is_file() and not path.name.startswith(".")]
    if len(found) != 1 or found[0].suffix == ".inprogress":
        raise RunFailedError("the session left no closed event log", found=[path.name for path in found] or "nothing")
    return found[0]


def keep(log: Path, path: Path, *, stand_ins: Mapping[str, str] | None) -> list[str]:
    """Write a log in zstd, in one frame.

    Parameters
    ----------
    log
        As Spark wrote it.
    path
        Where to.
    stand_ins
        From `scrub.places`; null keeps the log as it is.

    Returns
    -------
    list of str
        What it still tells about this machine, up to three findings; empty when it was not asked for.
    """
    notes: dict[str, int] = {}
    settings = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW_LOG, enable_ldm=True)
    with files.replacing(path) as temporary, temporary.open("wb") as file:
        compressor = zstandard.ZstdCompressor(compression_params=settings)
        with compressor.stream_writer(file, size=-1, closefd=False) as stream:
            for line in _lines(log, stand_ins, notes):
                stream.write(line)
    if len(notes) > MAX_NOTED:
        return [*list(notes)[:MAX_NOTED], f"and {len(notes) - MAX_NOTED} more"]
    return list(notes)


def _lines(log: Path, stand_ins: Mapping[str, str] | None, notes: dict[str, int]) -> Iterator[bytes]:
    with log.open("rb") as file:
        if stand_ins is None:
            yield from file
            return
        names = scrub.own_names()
        for line in file:
            text = scrub.scrub(line.rstrip(b"\n").decode("utf-8"), stand_ins)
            for finding in scrub.findings(text, names=names):
                notes[finding] = notes.get(finding, 0) + 1
            yield text.encode() + b"\n"
