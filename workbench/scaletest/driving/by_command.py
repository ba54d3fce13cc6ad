"""Objects by somebody's own command, such as a platform's CLI: words with places to fill in, never a shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from workbench.errors import ConfigError
from workbench.scaletest.driving import program
from workbench.scaletest.driving.reply import Meaning, Reply
from workbench.scaletest.planned import Request

PLACES = ("name", "namespace", "gpus", "file")
_PLACE = re.compile(r"\{(\w*)\}")
_NAMESPACE = re.compile(r"/namespaces/([^/]+)/")
_GPU = "nvidia.com/gpu"


def words_of(text: str, option: str) -> tuple[str, ...]:
    """The words of a command that is given as a text.

    Raises
    ------
    ConfigError
        A quote in it has no end.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError("not words of a command", where=option, found=str(error)) from None


class Command:
    """Objects by a command, one process each.

    Parameters
    ----------
    words
        Program and arguments; `{name}`, `{namespace}`, `{gpus}` (of the workload's first pod template) and `{file}`
        (the object as JSON, for the time of the call) are filled in.

    Raises
    ------
    ConfigError
        No such program, an unknown place, or no `{name}` and no `{file}`: all workloads would be one.
    """

    mode = "command"
    labelled = False

    def __init__(self, words: Sequence[str]) -> None:
        unknown = sorted({one for word in words for one in _PLACE.findall(word)} - set(PLACES))
        if unknown:
            allowed = [f"{{{one}}}" for one in PLACES]
            raise ConfigError("no such place in the command", where=" ".join(words), found=unknown, allowed=allowed)
        if not any("{name}" in word or "{file}" in word for word in words):
            raise ConfigError("the command does not say which workload", where=" ".join(words), do="add {name}")
        found = shutil.which(words[0])
        if found is None:
            raise ConfigError("no such program", where=words[0], do="give its path, or install it")
        self._words = [found, *words[1:]]

    async def make(self, request: Request, *, timeout_s: float) -> Reply:
        """Run the command for one object; never raises for what it does."""
        file = _kept(request.body) if any("{file}" in word for word in self._words) else None
        try:
            words = filled(self._words, request, file)
            ended = await program.run(words, stdin=None, timeout_s=timeout_s)
        finally:
            if file is not None:
                file.unlink(missing_ok=True)
        if ended.code == 0:
            return Reply(ended.sent_ns, ended.done_ns, 0)
        # A program that did not end may have done its work; one that says no is believed.
        verdict: Meaning = "again" if ended.code is None else "refused"
        told = ended.told if ended.code is None else f"exit code {ended.code}: {ended.told}"
        return Reply(ended.sent_ns, ended.done_ns, None, message=told, verdict=verdict)


def filled(words: Sequence[str], request: Request, file: Path | None) -> list[str]:
    """The words with their places filled in.

    Examples
    --------
    >>> body = b'{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}'
    >>> filled(["cli", "submit", "{name}", "-g={gpus}"], Request("/api/v1/namespaces/a/pods", "w-1", body), None)
    ['cli', 'submit', 'w-1', '-g=2']
    """
    namespace = _NAMESPACE.search(request.path + "/")
    values = {
        "name": request.name,
        "namespace": namespace[1] if namespace else "",
        "gpus": gpus(orjson.loads(request.body)),
        "file": str(file or ""),
    }
    return [_PLACE.sub(lambda found: values[found[1]], word) for word in words]


def gpus(body: Any) -> str:
    """GPUs of the first place in an object that names them: a resource, or a field `gpu` with a value.

    Examples
    --------
    >>> gpus({"spec": {"gpu": {"value": "0.5"}}}), gpus({"spec": {}})
    ('0.5', '0')
    """
    return _gpus(body) or "0"


def _gpus(body: Any) -> str | None:
    if isinstance(body, list):
        return next(filter(None, map(_gpus, body)), None)
    if not isinstance(body, dict):
        return None
    if isinstance(body.get(_GPU), str | int | float):
        return str(body[_GPU])
    field = body.get("gpu")
    if isinstance(field, dict) and "value" in field:
        return str(field["value"])
    return next(filter(None, map(_gpus, body.values())), None)


def _kept(body: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix="workload-", suffix=".json")
    with open(handle, "wb") as file:
        os.fchmod(handle, 0o600)
        file.write(body)
    return Path(name)
