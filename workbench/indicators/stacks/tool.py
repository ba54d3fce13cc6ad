"""uv, called so that only what is asked here counts: no settings of the folder it is called in, no other index.

What uv says comes back without colours, hosts and paths.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import MissingToolError, RunFailedError
from workbench.indicators.stacks.model import MOST_REASON
from workbench.indicators.stacks.sources import Sources

SOLVE_TIMEOUT_S = 300
INSTALL_TIMEOUT_S = 1800
# The user's own settings that say how to reach an index or where uv keeps its things, not what to solve.
_KEPT = frozenset(
    {
        "UV_CACHE_DIR",
        "UV_CONCURRENT_DOWNLOADS",
        "UV_HTTP_TIMEOUT",
        "UV_HTTP_RETRIES",
        "UV_INSECURE_HOST",
        "UV_KEYRING_PROVIDER",
        "UV_LINK_MODE",
        "UV_NATIVE_TLS",
        "UV_SYSTEM_CERTS",
        "UV_PYTHON_INSTALL_DIR",
    }
)
_DROPPED = frozenset({"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "COLUMNS", "FORCE_COLOR"})
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s`'\"<>)]+")
_PATH = re.compile(r"(?<![\w.:/])(?:/[\w.@%+~-]+){2,}/?|\b[A-Za-z]:\\[^\s`'\"]+")
_FRAME = re.compile(r"^[ \t]*(?:[×╰├│▶─]+|error:|cause:|help:)[ \t]*", re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """What a call of uv left: exit code, output, and its messages as they came."""

    code: int
    out: str
    err: str

    @property
    def explanation(self) -> str:
        """Its messages for people: without warnings, hosts, paths and colours, in one paragraph, bounded."""
        return cleaned("\n".join(line for line in self.err.splitlines() if not line.startswith("warning:")))


@functools.cache
def find() -> str:
    """Where is uv? The one that is installed beside this Python, else the one on PATH.

    Raises
    ------
    MissingToolError
        There is none.
    """
    found: str | None = None
    try:
        import uv

        found = uv.find_uv_bin()
    except (ModuleNotFoundError, FileNotFoundError):
        found = shutil.which("uv")
    if not found:
        raise MissingToolError("uv is not installed", where="workbench indicators stacks", do="pip install uv")
    return str(found)


@functools.cache
def version() -> str:
    """Version of uv, such as 0.13.8."""
    said = run(["--version"], sources=None)
    found = re.search(r"\d+\.\d+\.\d+\S*", said.out)
    if found is None:
        raise RunFailedError("uv does not tell its version", found=said.explanation, do="pip install --upgrade uv")
    return found[0]


def environment(sources: Sources | None, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that uv runs with: the user's, less what would change an answer, plus the index."""
    base = os.environ if base is None else base
    kept = {
        name: value
        for name, value in base.items()
        if name not in _DROPPED and (name in _KEPT or not name.startswith("UV_"))
    }
    wanted = {"NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    return kept | wanted | (sources.environment() if sources else {})


def run(
    arguments: Sequence[str | Path],
    *,
    sources: Sources | None,
    cwd: Path | None = None,
    timeout_s: float = SOLVE_TIMEOUT_S,
    offline: bool = False,
    holding: int | None = None,
) -> Said:
    """Call uv to its end.

    Parameters
    ----------
    arguments
        What follows `uv`.
    sources
        The index to use; null for calls that need none.
    cwd
        A folder without any project in it; an empty one without it.
    timeout_s
        After how long it is killed.
    offline
        Use what uv has in its cache alone.
    holding
        An open file that uv inherits: a lock on it lasts until uv has ended, even when this process is killed.

    Raises
    ------
    MissingToolError
        uv is not there.
    RunFailedError
        It did not end in time.
    """
    flags = ["--no-config", *(["--offline"] if offline else [])]
    # uv knows no variable that says so.
    only_links = ["--no-index"] if sources is not None and not sources.indexes and arguments[0] == "pip" else []
    command = [find(), *flags, *map(str, arguments), *only_links]
    with tempfile.TemporaryDirectory(prefix="workbench-uv-") as empty:
        try:
            done = subprocess.run(  # noqa: S603 - a list, no shell
                command,
                cwd=cwd or empty,
                env=environment(sources),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_s,
                check=False,
                stdin=subprocess.DEVNULL,
                pass_fds=() if holding is None else (holding,),
            )
        except subprocess.TimeoutExpired:
            raise RunFailedError(
                "uv did not end in time", where=f"uv {' '.join(map(str, arguments[:2]))}", found=f"{timeout_s:g} s"
            ) from None
        except OSError as error:
            raise MissingToolError("uv cannot be started", found=error.strerror, do="pip install uv") from error
    return Said(done.returncode, done.stdout, done.stderr)


def cleaned(text: str) -> str:
    """A message of uv for people and files: no colours, no hosts, no paths, no frame; one paragraph, bounded.

    Examples
    --------
    >>> cleaned("error: No solution\\n  cause: Because a==1 at https://me:pw@host/simple is not there")
    'No solution. Because a==1 at (url) is not there'
    """
    text = _COLOURS.sub("", text)
    text = _FRAME.sub("\n", _PATH.sub("(path)", _URL.sub("(url)", text)))
    parts = [" ".join(part.split()) for part in re.split(r"\n[ \t]*\n|\n(?=\n)", text)]
    said = ". ".join(part.rstrip(".") for part in parts if part)
    return said if len(said) <= MOST_REASON else said[: MOST_REASON - 1] + "…"
