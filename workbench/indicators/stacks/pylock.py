"""A stack as pylock.toml: each file with its address, size, upload time and hash. Source: PEP 751.

It is the user's own output: addresses name the index (never its user and password), so no shipped sample holds one.
"""

from __future__ import annotations

import json
import re

from workbench.errors import InputError
from workbench.indicators.stacks.index import Index, moment
from workbench.indicators.stacks.model import Package, Stack
from workbench.indicators.stacks.pages import Wheel
from workbench.indicators.stacks.sources import Sources, configured
from workbench.indicators.stacks.target import target, this_platform, uv_name
from workbench.redaction import without_user_info


def pylock(stack: Stack, sources: Sources | None = None) -> str:
    """The text of a pylock.toml that installs exactly the files of a stack's lock.

    Parameters
    ----------
    stack
        What is to be installed.
    sources
        The index that has the files; the configured one without it.

    Raises
    ------
    InputError
        The index does not list a file with a hash of the lock (any more).
    RunFailedError
        The index cannot be reached.
    """
    index = index_of(stack, sources)
    index.ask_ahead(stack.versions)
    minor = ".".join(stack.python.split(".")[:2])
    parts = [
        'lock-version = "1.0"\ncreated-by = "accelerated-workbench"\n' + f'requires-python = "=={minor}.*"\n',
        *(_package(package, _files(package, index, stack)) for package in stack.packages),
    ]
    return "\n".join(parts)


def index_of(stack: Stack, sources: Sources | None = None) -> Index:
    """The index as seen by a stack's Python and platform."""
    uv_platform = None if stack.platform == this_platform() else uv_name(stack.platform)
    return Index(sources or configured(), target(stack.python, uv_platform))


def _files(package: Package, index: Index, stack: Stack) -> list[Wheel]:
    found = [
        one
        for one in index.files(package.name, package.version)
        if one.sha256 and f"sha256:{one.sha256}" in package.hashes
    ]
    if not found:
        raise InputError(
            "the index does not list a file of the lock",
            where=stack.name,
            found=f"{package.name} {package.version}",
            do="set UV_DEFAULT_INDEX to the index that the stacks were made with",
        )
    return sorted(found, key=lambda one: one.name)


def _package(package: Package, wheels: list[Wheel]) -> str:
    lines = [
        "[[packages]]",
        f"name = {_text(package.name)}",
        f"version = {_text(package.version)}",
        "wheels = [",
        *(f"    {_wheel(one)}," for one in wheels),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _wheel(one: Wheel) -> str:
    facts = [f"name = {_text(one.name)}", f"url = {_text(without_user_info(one.url))}"]
    if one.uploaded is not None:
        facts.append(f"upload-time = {moment(one.uploaded)}")
    if one.size_bytes is not None:
        facts.append(f"size = {one.size_bytes}")
    facts.append(f"hashes = {{ sha256 = {_text(one.sha256 or '')} }}")
    return "{ " + ", ".join(facts) + " }"


def _text(text: str) -> str:
    # A JSON text is a TOML text, but for the escape of DEL, which TOML wants and JSON does not.
    return re.sub("\x7f", r"\\u007f", json.dumps(text))
