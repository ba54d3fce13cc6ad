"""Which indicator is a script of? Asked of the script: run once, under all limits, its document says its name.

So scripts written for the old contract run as they are. What they echo as parameters is what the session's runs are
held to: they take defaults of their own, which no model knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from workbench.errors import ConfigError, InputError
from workbench.indicators import legacy
from workbench.indicators.contract import Case, Indicator
from workbench.indicators.documents import Document, DocumentError, checked, decoded
from workbench.indicators.running import machine
from workbench.indicators.running.process import clean_environment, run_once
from workbench.indicators.running.recording import Undeclared
from workbench.indicators.running.wire import Command, Limits
from workbench.indicators.shipped.registry import indicator_named


def bound(indicator: type[Indicator], sources: Mapping[str, str]) -> type[Indicator]:
    """The same declaration with this script and these files; what it requires is not known, so nothing is."""
    files: Mapping[str, Any] = {name: text for name, text in sources.items() if name != "script.py"}
    namespace: dict[str, Any] = {
        "__module__": indicator.__module__,
        "__doc__": indicator.__doc__,
        "__annotations__": {"script": ClassVar[str], "files": ClassVar[Any], "requires": ClassVar[Any]},
        "script": sources["script.py"],
        "files": files,
        "requires": (),
    }
    made: type[Indicator] = type(indicator.__name__, (indicator,), namespace)
    return made


def probed(
    python: str,
    sources: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    threads: int,
    timeout_s: float,
    limits: Limits,
) -> tuple[Case, str | None]:
    """The case of a script, by one run of it; and what to note about that.

    A script that fails, or names an indicator that is not declared, gets the case `Undeclared`: its runs are kept,
    each with its status.
    """
    cpus, _ = machine.cores_for(threads)
    variables = clean_environment(threads, environment)
    ended = run_once(Command(python, sources, variables, timeout_s=timeout_s, cpus=cpus), limits)
    unknown = Case.of(bound(Undeclared, sources))
    try:
        document = decoded(ended.stdout)
        indicator, notice = _class_of(document)
        found = checked({**document, "name": indicator.__name__}, indicator)
    except DocumentError as error:
        told = error.reason if ended.outcome == "exited" else f"{ended.outcome}: {ended.detail}"
        return unknown, f"the first run of the script gave no document: {told}"
    except (ConfigError, InputError) as error:
        return unknown, f"{error.facts['found']}: no indicator of this name is declared; its runs are kept as they are"
    return Case(bound(indicator, sources), _parameters(found)), notice


def declared_named(name: str) -> type[Indicator]:
    """The shipped indicator, or the one of the old contract, of a name that a document tells; nothing is imported.

    Raises
    ------
    ConfigError
        There is none, or it names a module or a file: what a script or a session's file says must not choose code.
    """
    if ":" in name or name.endswith(".py"):
        raise ConfigError("not a name for an indicator", found=name[:80])
    return indicator_named(name)


def case_again(name: str, sources: Mapping[str, str], parameters: Mapping[str, Any]) -> Case:
    """The case of a session that was begun from a specification."""
    indicator = Undeclared if name == Undeclared.__name__ else declared_named(name)
    return Case(bound(indicator, sources), parameters)


def _class_of(document: Mapping[str, Any]) -> tuple[type[Indicator], str | None]:
    name = str(document.get("name"))[:80]
    if name in {model.__name__ for model in legacy.MODELS}:
        return legacy.model_for(document)
    return declared_named(name), None


def _parameters(found: Document) -> dict[str, Any]:
    return dict(found.parameters)
