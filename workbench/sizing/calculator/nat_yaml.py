"""The toolkit's YAML: environment variables put in, base files merged below."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, InputError

LARGEST_BYTES = 8 << 20
MOST_BASES = 16
_VARIABLE = re.compile(r"(?<!\\)\$\{(?P<name>[A-Za-z_]\w*)(?::?-(?P<default>[^}]*))?\}")


def load(path: str | Path) -> dict[str, Any]:
    """Read the YAML as the toolkit does.

    `${NAME}` and `${NAME:-default}` are put in from the environment (nothing for a name that is not set); the file that
    `base` names comes below, mappings merged.

    Raises
    ------
    InputError
        A file cannot be read, is larger than 8 MB, or is no YAML.
    ConfigError
        It is no mapping, or `base` leads back to itself.
    """
    return _load(Path(path), ())


def _load(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    path = path.resolve()
    if path in above or len(above) >= MOST_BASES:
        raise ConfigError("base files lead back to themselves", where=above[0], found=path)
    document = _parsed(path)
    base = document.pop("base", None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise ConfigError("not a file name", where=f"{path}, base", found=base)
    return _merged(_load(path.parent / base, (*above, path)), document)


def _parsed(path: Path) -> dict[str, Any]:
    import yaml

    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError("config file too large", where=path, allowed=f"at most {LARGEST_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError("config file cannot be read", where=path, found=error.strerror) from error
    except UnicodeDecodeError as error:
        raise InputError("config file is not UTF-8 text", where=path, found=f"byte {error.start}") from error
    try:
        document = yaml.safe_load(_VARIABLE.sub(_value, text))
    except (yaml.YAMLError, RecursionError) as error:
        # The error's own text would quote the line, in which a variable may have been put.
        mark = getattr(error, "problem_mark", None)
        found = getattr(error, "problem", None)
        raise InputError("not YAML", where=f"{path}, line {mark.line + 1}" if mark else path, found=found) from None
    except ValueError as error:
        # A date such as 2026-02-30, a number of thousands of digits: what looks like a value and is none.
        raise InputError("not YAML", where=path, found=str(error)[:120]) from None
    if not isinstance(document, dict):
        raise ConfigError("config file is no mapping", where=path, found=type(document).__name__)
    return document


def _value(found: re.Match[str]) -> str:
    return os.environ.get(found["name"]) or found["default"] or ""


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result
