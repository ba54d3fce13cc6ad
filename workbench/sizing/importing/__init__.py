"""Results of other load tools as a sweep that can be sized: guidellm, aiperf, the toolkit's calculator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, InputError

if TYPE_CHECKING:
    from workbench.sizing.importing.sweep import Imported

TOOLS = ("guidellm", "aiperf", "nat")
# What the tools call their reports when nobody names them.
REPORTS = ("benchmarks.json", "calc_runner_output.json")
_HEAD_BYTES = 1 << 20


def read(path: str | Path, tool: str | None = None) -> Imported:
    """What a load tool measured, as steps with their requests.

    Parameters
    ----------
    path
        guidellm's JSON report; aiperf's artifact folder or its `profile_export.jsonl`; the toolkit calculator's
        `calc_runner_output.json`; or the folder that one of these lies in. The first two may be gzip.
    tool
        One of `TOOLS`; told by the content without it.

    Raises
    ------
    ConfigError
        No such tool.
    InputError
        Nothing is there, it is not told by its content, or not as that tool writes it.
    """
    path = Path(path)
    if tool is not None and tool not in TOOLS:
        raise ConfigError("no such tool", where="--tool", found=tool, allowed=TOOLS)
    if not path.exists():
        raise InputError("no such file or folder", where=path)
    path = next((file for name in REPORTS if (file := path / name).is_file()), path) if path.is_dir() else path
    return _reader(tool or _told(path))(path)


def _reader(tool: str) -> Callable[[Path], Imported]:
    from workbench.sizing.importing import aiperf, guidellm, toolkit

    return {"guidellm": guidellm.read, "aiperf": aiperf.read, "nat": toolkit.read}[tool]


def _told(path: Path) -> str:
    """The tool that wrote it, by what is in it."""
    from workbench.sizing.importing import aiperf, reading

    if path.is_dir() or path.name.startswith(aiperf.RECORDS):
        return "aiperf"
    head = reading.head(path, _HEAD_BYTES)
    if b'"guidellm_version"' in head:
        return "guidellm"
    if b'"calc_data"' in head or b'"per_concurrency_data"' in head:
        return "nat"
    if b'"aiperf_version"' in head:
        raise InputError(
            "only the summary of aiperf, without its requests", where=path, allowed=f"its folder with {aiperf.RECORDS}"
        )
    raise InputError("not told by its content which tool wrote it", where=path, allowed=TOOLS, do="name it by --tool")
