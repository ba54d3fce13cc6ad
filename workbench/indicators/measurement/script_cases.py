"""Cases of scripts as they are: run once to see what they print, and declared by their first valid document."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from workbench.core import files
from workbench.core.data_files import read_json_file, read_text_file
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.redaction import is_secret_name
from workbench.core.schema import validate_model
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract.documents import DocumentError, parse_document, validate_document
from workbench.indicators.contract.indicator import Better, Case, Indicator
from workbench.indicators.contract.script_declaration import (
    MAX_BYTES,
    SUITES,
    ScriptDeclaration,
    build_script_case,
    infer_fields,
    is_answer,
    read_suite,
)
from workbench.indicators.measurement import machine_facts
from workbench.indicators.measurement.launcher_client import build_clean_environment, run_once
from workbench.indicators.measurement.run_messages import RunCommand, RunEnd, RunLimits
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.session_plan import Undeclared
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.shipped.indicator_classes import load_indicator

SCRIPTS = "scripts.json"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def declare_scripts(config: SessionConfig, variants: Sequence[Variant]) -> tuple[list[ScriptDeclaration], list[str]]:
    """The declarations of the configured scripts and suites, with notes on how their results are compared.

    Each is run once by the first variant that has what it needs; where it prints no valid document there, by the next.
    """
    # Results by name, with the direction that is better.
    better: dict[str, Better] = {}
    for text in config.better:
        name, _, word = text.partition("=")
        if not name or word not in ("lower", "higher"):
            raise ConfigError("not a direction", where="--better", found=text[:80], allowed="NAME=lower or NAME=higher")
        better[name] = "lower" if word == "lower" else "higher"
    declarations, notes = [], []
    for kind, texts in (("script", config.script), ("pytest", config.pytest), ("pyperf", config.pyperf)):
        for text in texts:
            script = _read_script(text) if kind == "script" else _read_suite(text, kind)
            declaration, more_notes = _declare(script, f"--{kind} {text}"[:200], config, variants, better)
            declarations.append(declaration)
            notes += more_notes
    if better and not declarations:
        raise ConfigError("--better is for scripts and suites", where="--better", do="add --script, or omit it")
    return declarations, notes


def build_cases(declarations: Sequence[ScriptDeclaration]) -> list[Case]:
    """The cases of declarations."""
    models = {model.__name__: model for model in thoth_indicators.MODELS}
    return [
        build_script_case(declaration, models[declaration.declared] if declaration.declared else None)
        for declaration in declarations
    ]


def write_declarations(folder: Path, declarations: Sequence[ScriptDeclaration]) -> None:
    """Write declarations into a session's folder, so that it can be resumed without the scripts."""
    document = {"scripts": [declaration.model_dump(mode="json") for declaration in declarations]}
    files.write_text(folder / SCRIPTS, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def read_declarations(folder: Path) -> list[ScriptDeclaration]:
    """Read the declarations of a session; none where it has no scripts."""
    path = folder / SCRIPTS
    if not path.is_file():
        return []
    document = read_json_file(path, noun="list of scripts", max_bytes=64 << 20)
    listed = document.get("scripts") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise InputError("not a list of scripts", where=path)
    return [validate_model(ScriptDeclaration, entry, noun="script", where=path) for entry in listed]


def _read_script(text: str) -> ScriptDeclaration:
    """A script by its path, with parameters behind a colon: n=5 sets PI_N, capitals name a variable themselves."""
    path, _, assignments = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
    if not path:
        raise ConfigError("no script", where="--script", found=text[:80], allowed="PATH or PATH:name=value,…")
    source = read_text_file(path, noun="script", max_bytes=MAX_BYTES, error_type=ConfigError)
    variables: dict[str, str] = {}
    for part in filter(None, assignments.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            raise ConfigError("not a parameter", where=f"--script {path}", found=part[:60], allowed="name=value")
        variable = name if _VARIABLE.fullmatch(name) else f"PI_{name.upper()}"
        if is_secret_name(variable):
            raise ConfigError("a secret cannot be a parameter", where=f"--script {path}", found=name)
        if variable in variables:
            raise ConfigError("a parameter twice", where=f"--script {path}", found=name)
        variables[variable] = value
    return ScriptDeclaration(name=Path(path).stem, sources={"script.py": source}, variables=variables)


def _read_suite(text: str, kind: str) -> ScriptDeclaration:
    name, sources = read_suite(Path(text), kind)
    return ScriptDeclaration(name=name, sources=sources, requires=SUITES[kind][1], suite=True)


def _declare(
    script: ScriptDeclaration, where: str, config: SessionConfig, variants: Sequence[Variant], better: dict[str, Better]
) -> tuple[ScriptDeclaration, list[str]]:
    """Run a script once, and declare it by its document; return notes on how it is compared."""
    fitting = [candidate for candidate in variants if all(need in candidate.arm.packages for need in script.requires)]
    if not fitting:
        raise ConfigError(
            "no stack can run this suite", where=where, found=f"none has {' and '.join(script.requires)}",
            do="add them to each stack, such as --stack 'numpy==2.2.6 pytest pytest-benchmark'",
        )  # fmt: skip
    reasons = []
    for variant in fitting:
        if variant.arm.is_control:
            continue
        try:
            variables = {**script.variables, **variant.environment}
            threads = variant.arm.threads or config.threads
            ended = run_as_configured(variant.interpreter, script.sources, variables, config, threads)
            if ended.outcome != "exited":
                last = ended.stderr.decode("utf-8", errors="replace").strip().splitlines()[-1:]
                raise DocumentError("invalid document", f"{ended.outcome}: {ended.detail} {' '.join(last)}"[:300])
            return _infer_declaration(script, parse_document(ended.stdout), where, better)
        except DocumentError as error:
            reasons.append(f"{variant.arm.name}: {error.reason}")
    raise RunFailedError(
        "the script printed no valid document", where=where, found="; ".join(reasons)[:800],
        do="it must print one JSON object with name, @parameters and @result",
    )  # fmt: skip


def run_as_configured(
    python: str, sources: Mapping[str, str], environment: Mapping[str, str], config: SessionConfig, threads: int
) -> RunEnd:
    """One run of a script on its own, within the limits that the session's runs will have."""
    cpus, _ = machine_facts.assign_cores(threads)
    memory_bytes = config.memory_limit_bytes(machine_facts.detect_hardware().memory_bytes)
    command = RunCommand(
        python, sources, build_clean_environment(threads, environment), timeout_s=config.timeout_s, cpus=cpus
    )
    return run_once(command, RunLimits(memory_bytes, config.processes, network=config.network))


def bind_script(indicator: type[Indicator], sources: Mapping[str, str]) -> type[Indicator]:
    """Return the same declaration with another script and files; as its requirements are unknown, it has none."""
    files: Mapping[str, Any] = {name: text for name, text in sources.items() if name != "script.py"}
    namespace: dict[str, Any] = {
        "__module__": indicator.__module__,
        "__doc__": indicator.__doc__,
        "__annotations__": {"script": ClassVar[str], "files": ClassVar[Any], "requires": ClassVar[Any]},
        "script": sources["script.py"],
        "files": files,
        "requires": (),
    }
    subclass: type[Indicator] = type(indicator.__name__, (indicator,), namespace)
    return subclass


def probe_script(
    python: str, sources: Mapping[str, str], environment: Mapping[str, str], config: SessionConfig
) -> tuple[Case, str | None]:
    """Find the case of a script by running it once; return it with a notice, if any.

    A script that fails or names an undeclared indicator gets the case `Undeclared`: its runs are kept with their
    status.
    """
    ended = run_as_configured(python, sources, environment, config, config.threads)
    unknown = Case.from_parameters(bind_script(Undeclared, sources))
    try:
        document = parse_document(ended.stdout)
        # The class that a document's name means, with a notice about documents of the old contract.
        name = str(document.get("name"))[:80]
        if name in {model.__name__ for model in thoth_indicators.MODELS}:
            indicator, notice = thoth_indicators.find_model(document)
        else:
            indicator, notice = find_declaration(name), None
        valid_document = validate_document({**document, "name": indicator.__name__}, indicator)
    except DocumentError as error:
        reason = error.reason if ended.outcome == "exited" else f"{ended.outcome}: {ended.detail}"
        return unknown, f"the first run of the script printed no valid document: {reason}"
    except (ConfigError, InputError) as error:
        return (
            unknown,
            f"{error.facts['found']}: no indicator of this name is declared; its runs are kept without values",
        )
    return Case(bind_script(indicator, sources), dict(valid_document.parameters)), notice


def find_declaration(name: str) -> type[Indicator]:
    """Find the shipped or Thoth indicator that a document names; no code is imported."""
    if ":" in name or name.endswith(".py"):
        raise ConfigError("not a name for an indicator", found=name[:80])
    return load_indicator(name)


def reload_case(name: str, sources: Mapping[str, str], parameters: Mapping[str, Any]) -> Case:
    """The case of a session that was started from a specification."""
    indicator = Undeclared if name == Undeclared.__name__ else find_declaration(name)
    return Case(bind_script(indicator, sources), parameters)


def _infer_declaration(
    script: ScriptDeclaration, document: Any, where: str, better: dict[str, Better]
) -> tuple[ScriptDeclaration, list[str]]:
    """The declaration by a document, and notes; a class of Thoth's where the document is one of its."""
    if not isinstance(document, dict):
        raise DocumentError("invalid document", "not a single JSON object")
    name = document.get("name")
    if not isinstance(name, str):
        raise DocumentError("invalid document", "name is missing")
    _check_used_parameters(script, document, where)
    if match := _match_thoth(document):
        model, notice, parameters = match
        declared = script.model_copy(
            update={"name": model.__name__, "declared": model.__name__, "parameters": parameters}
        )
        return declared, [f"{where}: {notice}"] if notice else []
    if script.suite and isinstance(document.get("@result"), dict):
        better = dict.fromkeys(document["@result"], "lower")
    fields = infer_fields(document, better)
    if script.suite:
        fields = tuple(field.model_copy(update={"unit": "ms"}) if field.role == "result" else field for field in fields)
    declaration = script.model_copy(update={"name": name, "fields": fields})
    case = build_script_case(declaration)
    checked = validate_document(document, case.indicator)
    declaration = declaration.model_copy(update={"parameters": dict(checked.parameters)})
    directions = [
        f"{field.name} ({field.better} is better)" for field in fields if field.role == "result" and field.better
    ]
    answers = [] if script.suite else [field.name for field in fields if is_answer(field)]
    others = [field.name for field in fields if field.role == "result" and not field.better]
    others = [name for name in others if name not in answers]
    note = f"{name}: compared by {', '.join(directions[:8])}"
    if len(directions) > 8:
        note += f" and {len(directions) - 8} more"
    note += f"; must equal the baseline's: {', '.join(answers[:8])}" if answers else ""
    note += f"; kept, not compared: {', '.join(others[:8])}" if others else ""
    return declaration, [note]


def _match_thoth(document: dict[str, Any]) -> tuple[type[Indicator], str | None, dict[str, Any]] | None:
    """The class of Thoth's that a document is of; null where it is of none, or has other fields."""
    try:
        model, notice = thoth_indicators.find_model(document)
        checked = validate_document({**document, "name": model.__name__}, model)
    except (InputError, DocumentError):
        return None
    return model, notice, dict(checked.parameters)


def _check_used_parameters(script: ScriptDeclaration, document: dict[str, Any], where: str) -> None:
    """Refuse a setting without effect: the document must tell the value that was asked for."""
    parameters = document.get("@parameters")
    values = parameters if isinstance(parameters, dict) else {}
    texts = {str(value).lower() for value in values.values()}
    for variable, value in script.variables.items():
        name = variable.removeprefix("PI_").lower()
        by_name = {key.lower(): entry for key, entry in values.items()}
        used = _equals(by_name[name], value) if name in by_name else (
            not variable.startswith("PI_") and any(_equals(entry, value) for entry in (*values.values(), *texts))
        )  # fmt: skip
        if not used:
            raise ConfigError(
                "the script does not use this setting",
                where=where,
                found=f"{variable}={value[:60]}; @parameters: {json.dumps(values)[:200]}",
                do="use the name of a parameter (n=5 sets PI_N), or the variable that the script reads",
            )


def _equals(actual: Any, expected: str) -> bool:
    if isinstance(actual, bool) or actual is None:
        return str(actual).lower() == expected.lower()
    try:
        return float(actual) == float(expected)
    except (TypeError, ValueError):
        return str(actual) == expected
