"""The script of an Amun specification and the files beside it: given as text, by path, or by URL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from workbench import redaction
from workbench.errors import ConfigError, InputError, RunFailedError

MOST_SCRIPT_BYTES = 1 << 20
MOST_FILES = 200
FETCH_TIMEOUT_S = 30


def script(found: Mapping[str, Any], path: Path, fetch: bool) -> tuple[str, list[str]]:
    """The script's text, and what to note of where it came from."""
    text = found.get("script")
    if not isinstance(text, str) or not text.strip():
        raise InputError("no script", where=f"{path}, script", do="give its text, or its path beside the specification")
    if re.match(r"[a-z][a-z0-9+.-]*://", text.strip(), re.IGNORECASE):
        return _fetched(text.strip(), path, fetch)
    if "\n" in text.strip() or not text.strip().endswith(".py"):
        return text, []
    beside = _inside(text.strip(), f"{path}, script")
    try:
        with (path.parent / beside).open("rb") as file:
            raw = file.read(MOST_SCRIPT_BYTES + 1)
        text = raw.decode("utf-8")
    except (OSError, ValueError) as error:
        raise InputError("cannot read the script", where=f"{path}, script", found=f"{beside}: {error}"[:200]) from None
    if len(raw) > MOST_SCRIPT_BYTES:
        raise InputError("too large for a script", where=f"{path}, script", allowed="up to 1 MiB")
    return text, []


def _fetched(url: str, path: Path, fetch: bool) -> tuple[str, list[str]]:
    if redaction.holds_user_info(url):
        # It would be written down with the notes, and told in errors.
        raise ConfigError(
            "a user or password in the script's URL",
            where=f"{path}, script",
            do="leave it out; or load the script yourself and name its file beside the specification",
        )
    shown = url[:200]
    if not fetch:
        raise ConfigError(
            "the script lies on a server",
            where=f"{path}, script",
            found=shown,
            do="read it first; then --fetch-script loads and runs it (its sha256 is noted)",
        )
    import http.client
    import urllib.request

    if not url.lower().startswith(("http://", "https://")):
        raise ConfigError("not a place to fetch a script from", where=f"{path}, script", found=shown, allowed="http(s)")
    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:  # noqa: S310 - http(s) alone
            raw = answer.read(MOST_SCRIPT_BYTES + 1)
        text = raw.decode("utf-8")
    except http.client.HTTPException as error:
        # Its text is what the server sent.
        raise RunFailedError("cannot fetch the script", where=shown, found=type(error).__name__) from None
    except (OSError, ValueError) as error:
        told = getattr(error, "reason", None) or error
        raise RunFailedError("cannot fetch the script", where=shown, found=str(told)[:200]) from None
    if len(raw) > MOST_SCRIPT_BYTES:
        raise InputError("too large for a script", where=shown, allowed="up to 1 MiB")
    return text, [f"script fetched from {shown}, sha256 {hashlib.sha256(raw).hexdigest()}"]


def files_beside(found: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The files that lie beside the script, by name; none may leave the run's folder."""
    files = found.get("files") or []
    if not isinstance(files, list) or len(files) > MOST_FILES:
        raise InputError(
            "not a list of files", where=f"{path}, files", allowed=f"at most {MOST_FILES} of path, content"
        )
    texts: dict[str, str] = {}
    for number, one in enumerate(files):
        where = f"{path}, files[{number}]"
        if not isinstance(one, Mapping) or not all(isinstance(one.get(key), str) for key in ("path", "content")):
            raise InputError("not a file", where=where, allowed="path and content, both texts")
        name = _inside(one["path"], where)
        if name == "script.py" or name in texts:
            raise InputError("a file of this name is there already", where=where, found=name)
        texts[name] = one["content"]
    return texts


def _inside(text: str, where: str) -> str:
    """A path that stays in its folder, normalised."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text or len(text) > 200:
        raise InputError(
            "a path that leaves the run's folder", where=where, found=text[:200], allowed="relative, no .."
        )
    return str(path)
