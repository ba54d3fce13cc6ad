"""Questions with known answers, sent among the load: is the service still right when it is busy?"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from workbench.core.data_files import read_json_documents
from workbench.core.errors import ConfigError, InputError

MAX_PROBES = 10_000
MAX_PROBE_BYTES = 64 << 20
KINDS = ("answer", "contains", "schema", "check")
CheckAnswer = Callable[[str, str], Any]
"""Own function: whether an answer to a prompt is right."""


class Probe(msgspec.Struct, frozen=True):
    """A question and what makes its answer right; one of these is set.

    `answer`: The whole answer, but for blanks around it and the case of letters. `contains`: A text in it.
    `schema`: JSON Schema of an answer that is JSON. `check`: An own function, module:function.
    """

    prompt: str
    answer: str | None = None
    contains: str | None = None
    schema: dict[str, Any] | None = None
    check: str | None = None

    def is_right(self, answer: str) -> bool:
        """Whether an answer is right; an own function that fails says that it is not.

        >>> Probe("2 + 2?", answer="4").is_right(" 4 "), Probe("2 + 2?", contains="4").is_right("It is 5.")
        (True, False)
        >>> Probe("Give JSON.", schema={"type": "object", "required": ["a"]}).is_right('{"a": 1}')
        True
        """
        if self.answer is not None:
            return answer.strip().casefold() == self.answer.strip().casefold()
        if self.contains is not None:
            return self.contains.casefold() in answer.casefold()
        if self.schema is not None:
            try:
                return bool(_build_validator(json.dumps(self.schema)).is_valid(json.loads(answer)))
            except (ValueError, RecursionError):
                return False
        try:
            return bool(_load_check(str(self.check))(self.prompt, answer))
        except Exception:  # noqa: BLE001 - the function judges answers that may be anything
            return False


@functools.lru_cache(maxsize=MAX_PROBES)
def _build_validator(schema: str) -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(schema))


@functools.cache
def _load_check(place: str) -> CheckAnswer:
    from workbench.core.user_code import load_user_function

    return load_user_function(place, where=place)


def read_probes(path: Path) -> list[Probe]:
    """Read probes from JSON lines with `prompt` and one of `answer`, `contains`, `schema`, `check`.

    Raises
    ------
    InputError
        A line has another form, a schema is none, or there is no line.
    ConfigError
        A function cannot be loaded.
    """
    probes = []
    for document, where in read_json_documents(path, noun="file of probes", max_bytes=MAX_PROBE_BYTES):
        given = [kind for kind in KINDS if isinstance(document, dict) and document.get(kind) is not None]
        if len(given) != 1 or not isinstance(document.get("prompt"), str) or {*document} - {"prompt", *KINDS}:
            found = sorted(document) if isinstance(document, dict) else type(document).__name__
            raise InputError("not a probe", where=where, found=found, allowed=f"prompt and one of {', '.join(KINDS)}")
        value, kind = document[given[0]], dict if given[0] == "schema" else str
        if not isinstance(value, kind):
            raise InputError("not a probe", where=where, found=f"{given[0]}: {type(value).__name__}")
        probe = Probe(**document)
        _check_probe(probe, where)
        probes.append(probe)
    if not 1 <= len(probes) <= MAX_PROBES:
        raise InputError("no probes, or too many", where=path, found=len(probes), allowed=f"1 to {MAX_PROBES:,}")
    return probes


def _check_probe(probe: Probe, where: str) -> None:
    if probe.schema is not None:
        import jsonschema

        # They could name files and addresses.
        if foreign := [ref for ref in _list_references(probe.schema) if not ref.startswith("#")]:
            raise InputError("a schema that refers to another document", where=where, found=foreign[0][:100])
        try:
            jsonschema.Draft202012Validator.check_schema(probe.schema)
        except jsonschema.SchemaError as error:
            raise InputError("not a JSON schema", where=where, found=error.message[:200]) from None
    if probe.check is not None:
        try:
            _load_check(probe.check)
        except ConfigError as error:
            error.facts["where"] = f"{where}, {probe.check}"
            raise


def _list_references(value: Any) -> list[str]:
    """References of a JSON schema, at any depth."""
    if isinstance(value, list):
        return [ref for item in value for ref in _list_references(item)]
    if not isinstance(value, dict):
        return []
    own = [str(value[name]) for name in ("$ref", "$dynamicRef") if name in value]
    return own + [ref for item in value.values() for ref in _list_references(item)]
