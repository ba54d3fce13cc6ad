"""Which package index is configured: what uv or pip would ask, so that this asks the same.

URLs may hold a password. They are handed to uv by its environment, never on a command line, and no message or file
shows one.
"""

from __future__ import annotations

import configparser
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from workbench.errors import ConfigError
from workbench.redaction import without_user_info

DEFAULT_INDEX = "https://pypi.org/simple"
STRATEGIES = ("first-index", "unsafe-first-match", "unsafe-best-match")


@dataclass(frozen=True)
class Sources:
    """Where packages come from, in the order in which they are asked; the default index is the last.

    `told_by` names the setting that the default index comes from.
    """

    indexes: tuple[str, ...] = field(repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    strategy: str = "first-index"
    told_by: str = "the default"

    @property
    def shown(self) -> str:
        """The default index for a message: without user and password."""
        return without_user_info(self.indexes[-1]) if self.indexes else "no index"

    def environment(self) -> dict[str, str]:
        """The variables that tell uv the same."""
        settings = {"UV_INDEX_STRATEGY": self.strategy}
        if self.indexes:
            settings["UV_DEFAULT_INDEX"] = self.indexes[-1]
        if self.indexes[:-1]:
            settings["UV_INDEX"] = " ".join(self.indexes[:-1])
        if self.find_links:
            settings["UV_FIND_LINKS"] = ",".join(self.find_links)
        return settings


def configured(environment: Mapping[str, str] | None = None) -> Sources:
    """The index that uv is configured with, else the one that pip is, else PyPI.

    Asked in this order: UV_DEFAULT_INDEX (UV_INDEX_URL), uv.toml, PIP_INDEX_URL, pip.conf. Further indexes and flat
    folders of wheels (find-links) likewise, each from the first place that tells any.

    Parameters
    ----------
    environment
        The environment variables; this process's without it.

    Raises
    ------
    ConfigError
        A configuration file cannot be read, or names a strategy that uv does not have.
    """
    env = dict(os.environ if environment is None else environment)
    places = [_uv_variables(env), _uv_files(env), _pip_variables(env), _pip_files(env)]
    none = {"UV_NO_INDEX": env.get("UV_NO_INDEX"), "PIP_NO_INDEX": env.get("PIP_NO_INDEX")}
    off = any((value or "").lower() in ("1", "true", "yes", "on") for value in none.values())
    default, told_by = next(((place["index"], place["by"]) for place in places if place.get("index")), (None, None))
    extra = next((place["extra"] for place in places if place.get("extra")), ())
    links = next((place["links"] for place in places if place.get("links")), ())
    strategy = next((place["strategy"] for place in places if place.get("strategy")), STRATEGIES[0])
    if strategy not in STRATEGIES:
        raise ConfigError("unknown index strategy", where="UV_INDEX_STRATEGY", found=strategy[:40], allowed=STRATEGIES)
    indexes = () if off else (*extra, default or DEFAULT_INDEX)
    return Sources(
        tuple(_address(one, env) for one in indexes),
        tuple(_present(_address(one, env) for one in links)),
        strategy,
        told_by or "the default",
    )


def _uv_variables(env: Mapping[str, str]) -> dict[str, Any]:
    name = "UV_DEFAULT_INDEX" if env.get("UV_DEFAULT_INDEX") else "UV_INDEX_URL"
    return {
        "by": name,
        "index": env.get(name),
        "extra": tuple((env.get("UV_INDEX") or env.get("UV_EXTRA_INDEX_URL") or "").split()),
        "links": tuple(part for part in (env.get("UV_FIND_LINKS") or "").replace(",", " ").split()),
        "strategy": env.get("UV_INDEX_STRATEGY"),
    }


def _pip_variables(env: Mapping[str, str]) -> dict[str, Any]:
    return {
        "by": "PIP_INDEX_URL",
        "index": env.get("PIP_INDEX_URL"),
        "extra": tuple((env.get("PIP_EXTRA_INDEX_URL") or "").split()),
        "links": tuple((env.get("PIP_FIND_LINKS") or "").split()),
    }


def _uv_files(env: Mapping[str, str]) -> dict[str, Any]:
    home = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/")) / ".config")
    named = env.get("UV_CONFIG_FILE")
    if env.get("UV_NO_CONFIG"):
        return {}
    for path in [Path(named)] if named else [home / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]:
        if not path.is_file():
            continue
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError("cannot read uv's configuration", where=path, found=str(error)[:200]) from error
        return _uv_document(document)
    return {}


def _uv_document(document: Mapping[str, Any]) -> dict[str, Any]:
    inner = document.get("pip")
    flat = {**document, **(inner if isinstance(inner, dict) else {})}
    entries = [
        entry for entry in _listed(flat, "index") if isinstance(entry, dict) and isinstance(entry.get("url"), str)
    ]
    # An explicit index serves only the packages that a project pins to it.
    entries = [entry for entry in entries if not entry.get("explicit")]
    default = next((_named(entry) for entry in entries if entry.get("default")), flat.get("index-url"))
    extra = [_named(entry) for entry in entries if not entry.get("default")] or _listed(flat, "extra-index-url")
    return {
        "by": "uv.toml",
        "index": default,
        "extra": tuple(map(str, extra)),
        "links": tuple(map(str, _listed(flat, "find-links"))),
        "strategy": flat.get("index-strategy"),
    }


def _listed(document: Mapping[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []


def _named(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    return f"{name}={entry['url']}" if name else str(entry["url"])


def _pip_files(env: Mapping[str, str]) -> dict[str, Any]:
    home = Path(env.get("HOME", "/"))
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    # The most special first: pip reads them the other way round and lets the later one win.
    paths = [Path(sys.prefix) / "pip.conf", config / "pip" / "pip.conf", home / ".pip" / "pip.conf"]
    paths += [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    if named := env.get("PIP_CONFIG_FILE"):
        paths = [] if named == os.devnull else [Path(named), *paths]
    found: dict[str, Any] = {"by": "pip's configuration"}
    for path in filter(Path.is_file, paths):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            # The error's text may quote a line with a password.
            kind = type(error).__name__
            raise ConfigError("cannot read pip's configuration", where=path, found=kind) from error
        for name, key in (("index", "index-url"), ("extra", "extra-index-url"), ("links", "find-links")):
            value = parser.get("install", key, fallback="") or parser.get("global", key, fallback="")
            if value and not found.get(name):
                found[name] = value.strip() if name == "index" else tuple(value.split())
    return found


def _address(text: str, env: Mapping[str, str]) -> str:
    """A URL: uv's name=URL loses its name and gets the login that uv keeps under it, a local folder its scheme."""
    name, equals, rest = text.partition("=")
    if equals and name.replace("-", "").replace("_", "").isalnum():
        text = _with_login(rest, name, env)
    return text if "://" in text else Path(text).expanduser().absolute().as_uri()


def _with_login(url: str, name: str, env: Mapping[str, str]) -> str:
    """The URL with what UV_INDEX_NAME_USERNAME and _PASSWORD hold, unless it has a login already."""
    parts = urlsplit(url)
    variable = "UV_INDEX_" + name.upper().replace("-", "_").replace(".", "_")
    user, password = env.get(f"{variable}_USERNAME"), env.get(f"{variable}_PASSWORD")
    if "@" in parts.netloc or not parts.netloc or (user is None and password is None):
        return url
    login = f"{quote(user or '', safe='')}:{quote(password or '', safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def _present(links: Iterable[str]) -> list[str]:
    # uv ends on a folder that is not there, pip only warns.
    return [link for link in links if not link.startswith("file:") or Path(unquote(urlsplit(link).path)).exists()]
