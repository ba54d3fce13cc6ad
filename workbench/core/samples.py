"""Shipped samples by name: `sample:tpch_sf0.1` wherever a command, a notebook or a panel takes a path.

`data/samples/samples.json` lists the samples with a line each. A name is the path below `data/samples`, the end of it,
or either without suffix; where two samples have it, the path tells them apart. Installed or not, from any folder, it is
the shipped sample that is meant.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from workbench.core.errors import ConfigError
from workbench.core.files import CHECKOUT, SHIPPED, default_out

PREFIX = "sample:"
RECORDED_SAMPLE = "recorded sample"
# A sample that is no recording: the run measured with it.
SAMPLE_DATA = "sample data"
FOLDER = SHIPPED / "data" / "samples"
DATA_FOLDERS = ("lore", "scaletest/scenarios")
LIST = "samples.json"
_SUFFIX = re.compile(r"(\.(zstd|json|jsonl|gz|yaml|sql|csv|parquet))+$")


@functools.cache
def list_samples() -> dict[str, str]:
    """What each sample holds, by its path below the folder of samples; those that are not installed are missing."""
    try:
        samples: dict[str, str] = json.loads((FOLDER / LIST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {name: text for name, text in samples.items() if (FOLDER / name).exists()}


def find_sample(text: str) -> str:
    """The path of the sample that `sample:NAME` means; any other text is itself.

    `data/samples/...` is found, too. What the present folder has of this name comes first.

    >>> find_sample("sample:tpch_sf0.1").endswith("data/samples/eventlogs/tpch_sf0.1.zstd"), find_sample("app.zstd")
    (True, 'app.zstd')
    >>> find_sample("sample:sizing")
    Traceback (most recent call last):
    ...
    workbench.core.errors.ConfigError: more than one sample has this name
      where: sample:sizing
      allowed: sample:gpu/sizing, sample:capacity/sizing
    """
    if not text.startswith((PREFIX, "data/samples/")) or os.path.lexists(text):
        return text
    if text.startswith(PREFIX):
        return str(_resolve_name(text.removeprefix(PREFIX)))
    sample = SHIPPED / text
    return str(sample) if ".." not in sample.parts and sample.exists() else text


def is_sample(text: str) -> bool:
    """Whether a text names samples that there are.

    >>> is_sample("sample:first-test"), is_sample("sample:42"), is_sample("first-test")
    (True, False, False)
    """
    name = text.removeprefix(PREFIX)
    return name != text and (bool(_match_name(name)) or _find_member(name) is not None)


def spell_sample(path: str) -> str:
    """A path below the folder of samples as `sample:NAME`, which holds on any machine; any other text is itself.

    >>> spell_sample(find_sample("sample:tpch_sf0.1")), spell_sample("app.zstd")
    ('sample:tpch_sf0.1', 'app.zstd')
    """
    if not path.startswith(f"{FOLDER}{os.sep}"):
        return path
    inner = Path(path).relative_to(FOLDER).as_posix()
    return PREFIX + (name_sample(inner) if inner in list_samples() else inner)


def describe_samples(paths: Iterable[str]) -> str:
    """The condition that inputs are samples (recorded, or data to measure with), from their paths; empty for none.

    >>> describe_samples(["data/samples/sizing/app", "https://host/log"]), describe_samples(["app.zstd"])
    ('1 of 2 inputs is a sample', '')
    >>> describe_samples(["data/samples/lore/query.sql"]), describe_samples(["data/samples/sizing/app"])
    ('sample data', 'recorded sample')
    """
    full_paths = [CHECKOUT / path for path in paths]
    n_samples = sum(path.is_relative_to(FOLDER.resolve()) for path in full_paths)
    if n_samples in (0, len(full_paths)):
        is_data = all(any(path.is_relative_to(FOLDER.resolve() / name) for name in DATA_FOLDERS) for path in full_paths)
        return "" if not n_samples else SAMPLE_DATA if is_data else RECORDED_SAMPLE
    return f"{n_samples} of {len(full_paths)} inputs {'is a sample' if n_samples == 1 else 'are samples'}"


def copy_sample(folder: Path) -> Path:
    """The folder itself; of one among the samples, which no command changes, a copy beside the runs."""
    if not folder.absolute().is_relative_to(FOLDER):
        return folder
    copy = default_out() / "samples" / folder.absolute().relative_to(FOLDER)
    return Path(shutil.copytree(folder, copy, dirs_exist_ok=True))


def name_sample(path: str) -> str:
    """The shortest name that only this sample has.

    >>> name_sample("eventlogs/tpch_sf0.1.zstd"), name_sample("gpu/sizing")
    ('tpch_sf0.1', 'gpu/sizing')
    """
    names = sorted(_list_names(path), key=lambda name: (name != _strip_suffix(name), len(name)))
    # The name of a folder of samples is no good one for a sample in another.
    return next((name for name in names if _match_name(name) == [path] and not (FOLDER / name).is_dir()), path)


def _list_names(path: str) -> set[str]:
    parts = PurePosixPath(path).parts
    tails = ["/".join(parts[at:]) for at in range(len(parts))]
    return {*tails, *map(_strip_suffix, tails)}


def _strip_suffix(name: str) -> str:
    return _SUFFIX.sub("", name)


def _match_name(name: str) -> list[str]:
    """The samples that have a name: one whose whole path it is, else all that end in it."""
    samples = list_samples()
    return [name] if name in samples else [path for path in samples if name in _list_names(path)]


def _resolve_name(name: str) -> Path:
    name = name.strip("/")
    found = _match_name(name)
    if len(found) == 1:
        return FOLDER / found[0]
    if found:
        allowed = ", ".join(f"{PREFIX}{path}" for path in found)
        raise ConfigError("more than one sample has this name", where=PREFIX + name, allowed=allowed)
    if (path := _find_member(name)) is not None:
        return path
    names = {part: sample for sample in list_samples() for part in _list_names(sample)}
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    do = f"did you mean {PREFIX}{name_sample(names[close[0]])}? " if close else ""
    raise ConfigError("no such sample", where=PREFIX + name, do=f"{do}workbench samples lists them")


def _find_member(name: str) -> Path | None:
    """A file or folder that is not listed itself: part of a sample, or beside one; null for none."""
    path = FOLDER / name
    return path if name and ".." not in path.parts and path.exists() else None
