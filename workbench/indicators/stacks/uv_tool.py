"""Runs uv in a controlled environment, and reads the package index configured for uv or pip."""

from __future__ import annotations

import configparser
import functools
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from workbench.core.child_process import CommandResult, run_command
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.core.formats import cut_text
from workbench.core.redaction import strip_user_info
from workbench.indicators.stacks.stack_sets import MAX_REASON

DEFAULT_INDEX = "https://pypi.org/simple"
STRATEGIES = ("first-index", "unsafe-first-match", "unsafe-best-match")
SOLVE_TIMEOUT_S = 300
INSTALL_TIMEOUT_S = 1800
# User settings that affect access to an index or uv's folders, but not the solution.
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
class Sources:
    """Package indexes in the order of requests; the default index is the last.

    `told_by` names the setting that defines the default index. `pinned` maps packages to the name and address of the
    index that alone has them.
    """

    indexes: tuple[str, ...] = field(repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    strategy: str = "first-index"
    told_by: str = "the default"
    pinned: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)

    def select_for(self, package: str) -> Sources:
        """The sources of one package: its pinned index alone, else these without pins."""
        if package not in self.pinned:
            return replace(self, pinned={})
        return Sources((self.pinned[package][1],), (), STRATEGIES[0], self.pinned[package][0])

    @property
    def shown(self) -> str:
        """Default index without user and password, for messages."""
        return strip_user_info(self.indexes[-1]) if self.indexes else "no index"

    def build_environment(self) -> dict[str, str]:
        """Environment variables that configure uv accordingly."""
        settings = {"UV_INDEX_STRATEGY": self.strategy}
        if self.indexes:
            settings["UV_DEFAULT_INDEX"] = self.indexes[-1]
        if self.indexes[:-1]:
            settings["UV_INDEX"] = " ".join(self.indexes[:-1])
        if self.find_links:
            settings["UV_FIND_LINKS"] = ",".join(self.find_links)
        return settings


def load_sources(environment: Mapping[str, str] | None = None) -> Sources:
    """Load the index configured for uv, else that of pip, else PyPI.

    The order is UV_DEFAULT_INDEX (UV_INDEX_URL), uv.toml, PIP_INDEX_URL, pip.conf. Further indexes and flat folders of
    wheels (find-links) each come from the first of these that sets them.
    """
    env = dict(os.environ if environment is None else environment)
    uv_variable = "UV_DEFAULT_INDEX" if env.get("UV_DEFAULT_INDEX") else "UV_INDEX_URL"
    places: list[dict[str, Any]] = [
        {
            "by": uv_variable,
            "index": env.get(uv_variable),
            "extra": (env.get("UV_INDEX") or env.get("UV_EXTRA_INDEX_URL") or "").split(),
            "links": env.get("UV_FIND_LINKS", "").replace(",", " ").split(),
            "strategy": env.get("UV_INDEX_STRATEGY"),
        },
        _read_uv_file(env),
        {
            "by": "PIP_INDEX_URL",
            "index": env.get("PIP_INDEX_URL"),
            "extra": env.get("PIP_EXTRA_INDEX_URL", "").split(),
            "links": env.get("PIP_FIND_LINKS", "").split(),
        },
        _read_pip_files(env),
    ]

    def pick(name: str, default: Any) -> Any:
        """A setting of the first place that has it."""
        return next((place[name] for place in places if place.get(name)), default)

    strategy = pick("strategy", STRATEGIES[0])
    if strategy not in STRATEGIES:
        raise ConfigError(
            "unknown index strategy", where="UV_INDEX_STRATEGY", found=str(strategy)[:40], allowed=STRATEGIES
        )
    off = any(env.get(name, "").lower() in ("1", "true", "yes", "on") for name in ("UV_NO_INDEX", "PIP_NO_INDEX"))
    indexes = () if off else (*pick("extra", ()), pick("index", DEFAULT_INDEX))
    links = [_resolve_address(address, env) for address in pick("links", ())]
    return Sources(
        tuple(_resolve_address(address, env) for address in indexes),
        # uv fails on a missing folder of links, whereas pip only warns.
        tuple(link for link in links if not link.startswith("file:") or Path(unquote(urlsplit(link).path)).exists()),
        strategy,
        next((place["by"] for place in places if place.get("index")), "the default"),
    )


def _read_text(value: Any) -> str | None:
    """A setting that is a text; null for any other."""
    return value if isinstance(value, str) else None


def _read_uv_file(env: Mapping[str, str]) -> dict[str, Any]:
    """Settings of uv's first configuration file that exists, with the keys of `load_sources`; empty without one."""
    home = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/")) / ".config")
    named = env.get("UV_CONFIG_FILE")
    paths = [Path(named)] if named else [home / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
    path = next(filter(Path.is_file, paths), None)
    if path is None or env.get("UV_NO_CONFIG"):
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("cannot read uv's configuration", where=path, found=str(error)[:200]) from error
    inner = document.get("pip")
    settings = {**document, **(inner if isinstance(inner, dict) else {})}
    lists: dict[str, list[Any]] = {
        name: settings[name] if isinstance(settings.get(name), list) else []
        for name in ("index", "extra-index-url", "find-links")
    }
    addresses = [
        (f"{entry['name']}={entry['url']}" if entry.get("name") else entry["url"], bool(entry.get("default")))
        for entry in lists["index"]
        # An explicit index serves only the packages that a project pins to it.
        if isinstance(entry, dict) and isinstance(entry.get("url"), str) and not entry.get("explicit")
    ]
    return {
        "by": "uv.toml",
        "index": next(
            (address for address, is_default in addresses if is_default), _read_text(settings.get("index-url"))
        ),
        "extra": [address for address, is_default in addresses if not is_default]
        or list(map(str, lists["extra-index-url"])),
        "links": list(map(str, lists["find-links"])),
        "strategy": settings.get("index-strategy"),
    }


def _read_pip_files(env: Mapping[str, str]) -> dict[str, Any]:
    """Settings of pip's configuration files; the most specific file that has a setting counts."""
    home = Path(env.get("HOME", "/"))
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    # Most specific first; pip reads them in reverse order and the last one wins.
    paths = [Path(sys.prefix) / "pip.conf", config / "pip" / "pip.conf", home / ".pip" / "pip.conf"]
    paths += [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    if named := env.get("PIP_CONFIG_FILE"):
        paths = [] if named == os.devnull else [Path(named), *paths]
    settings: dict[str, Any] = {"by": "pip's configuration"}
    for path in filter(Path.is_file, paths):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            # The error message may contain a line with a password.
            kind = type(error).__name__
            raise ConfigError("cannot read pip's configuration", where=path, found=kind) from error
        for name, key in (("index", "index-url"), ("extra", "extra-index-url"), ("links", "find-links")):
            value = parser.get("install", key, fallback="") or parser.get("global", key, fallback="")
            if value and not settings.get(name):
                settings[name] = value.strip() if name == "index" else tuple(value.split())
    return settings


def _resolve_address(text: str, env: Mapping[str, str]) -> str:
    """Resolve an index to a URL: uv's name=URL gets the credentials of that name, a local folder gets a scheme."""
    name, equals, url = text.partition("=")
    if equals and name.replace("-", "").replace("_", "").isalnum():
        # URL with the credentials of UV_INDEX_NAME_USERNAME and _PASSWORD, unless it already has some.
        parts = urlsplit(url)
        variable = "UV_INDEX_" + name.upper().replace("-", "_").replace(".", "_")
        user, password = env.get(f"{variable}_USERNAME"), env.get(f"{variable}_PASSWORD")
        if "@" in parts.netloc or not parts.netloc or (user is None and password is None):
            text = url
        else:
            login = f"{quote(user or '', safe='')}:{quote(password or '', safe='')}"
            text = urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
    return text if "://" in text else Path(text).expanduser().absolute().as_uri()


def resolve_pinned(indexes: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Name and address of the index of each package, with the credentials that the environment has for that name."""
    return {
        package: (name, _resolve_address(f"{name}={url}", dict(os.environ)))
        for package, (name, url) in indexes.items()
        if url
    }


@functools.cache
def find_uv() -> str:
    """Find uv beside this Python, else on PATH."""
    path: str | None = None
    try:
        import uv

        path = uv.find_uv_bin()
    except (ModuleNotFoundError, FileNotFoundError):
        path = shutil.which("uv")
    if not path:
        raise MissingToolError("uv is not installed", where="workbench indicators stacks", do="pip install uv")
    return str(path)


@functools.cache
def read_uv_version() -> str:
    """Version of uv, such as 0.13.8."""
    output = run_uv(["--version"], sources=None)
    match = re.search(r"\d+\.\d+\.\d+\S*", output.stdout)
    if match is None:
        raise RunFailedError(
            "cannot read the version of uv", found=explain_failure(output), do="pip install --upgrade uv"
        )
    return match[0]


def build_uv_environment(sources: Sources | None, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of uv: user variables without those that change results, plus the index."""
    base = os.environ if base is None else base
    variables = {
        name: value
        for name, value in base.items()
        if name not in _DROPPED and (name in _KEPT or not name.startswith("UV_"))
    }
    wanted = {"NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    return variables | wanted | (sources.build_environment() if sources else {})


def run_uv(
    arguments: Sequence[str | Path],
    *,
    sources: Sources | None,
    cwd: Path | None = None,
    timeout_s: float = SOLVE_TIMEOUT_S,
    offline: bool = False,
    lock_descriptor: int | None = None,
) -> CommandResult:
    """Run uv and wait for it.

    `sources`: Package index; null for calls without one.
    `lock_descriptor`: Open file that uv inherits, so that a lock on it lasts until uv has ended, even if this process
    is killed.
    """
    flags = ["--no-config", *(["--offline"] if offline else [])]
    # uv has no environment variable for this.
    only_links = ["--no-index"] if sources is not None and not sources.indexes and arguments[0] == "pip" else []
    with tempfile.TemporaryDirectory(prefix="workbench-uv-") as empty:
        try:
            return run_command(
                [find_uv(), *flags, *arguments, *only_links],
                cwd=cwd or empty,
                env=build_uv_environment(sources),
                timeout_s=timeout_s,
                pass_fds=() if lock_descriptor is None else (lock_descriptor,),
                do="pip install uv",
            )
        except RunFailedError:
            place = f"uv {' '.join(map(str, arguments[:2]))}"
            raise RunFailedError("uv exceeded its time limit", where=place, found=f"{timeout_s:g} s") from None


def explain_failure(result: CommandResult) -> str:
    """uv's messages for display: one bounded paragraph without warnings, hosts, paths and colours."""
    return clean_message("\n".join(line for line in result.stderr.splitlines() if not line.startswith("warning:")))


def clean_message(text: str) -> str:
    """Clean a message of uv: one bounded paragraph without colours, hosts, paths and frames.

    >>> clean_message("error: No solution\\n  cause: Because a==1 at https://me:pw@host/simple is not there")
    'No solution. Because a==1 at (url) is not there'
    """
    text = _COLOURS.sub("", text)
    text = _FRAME.sub("\n", _PATH.sub("(path)", _URL.sub("(url)", text)))
    parts = [" ".join(part.split()) for part in re.split(r"\n[ \t]*\n|\n(?=\n)", text)]
    message = ". ".join(part.rstrip(".") for part in parts if part)
    return cut_text(message, MAX_REASON)
