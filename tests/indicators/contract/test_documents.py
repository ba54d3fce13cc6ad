"""What a script may print: one valid document, or a status that says why not."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.indicators.contract.documents import (
    MAX_SAMPLES,
    MAX_STDOUT_BYTES,
    Document,
    DocumentError,
    name_framework,
    parse_document,
    validate_document,
)
from workbench.indicators.contract.indicator import BASE_COLUMNS, Indicator, check, parameter, result


class Sorting(Indicator):
    """Sort."""

    n: int = parameter(1000, ge=1)
    library: Literal["numpy", "torch"] = parameter("numpy")
    most: float = parameter(1.0, ge=0)
    old: int | None = parameter(optional=True, alias="OLD_NAME")
    elapsed_ms: float = result(unit="ms", better="lower", ge=0)
    swaps: int | None = result(unit="swaps", optional=True)
    error: float = check(at_most=0.5, unit="ULP")
    error_most: float = check(at_most="most")
    wrong: int = check(equals=0)
    sorted_: bool = check(equals=True)
    digest: str = check()


GOOD: dict[str, Any] = {
    "name": "Sorting",
    "framework": "numpy",
    "@parameters": {"n": 5, "library": "numpy", "most": 2.0},
    "@result": {"elapsed_ms": 1.5},
    "@checks": {"error": 0.25, "error_most": 1.5, "wrong": 0, "sorted_": True, "digest": "ab"},
}


def changed(*path: str, to: Any) -> dict[str, Any]:
    """The good document with one place changed; `...` takes it away."""
    made = json.loads(json.dumps(GOOD))
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return made


def read(document: dict[str, Any], **asked: Any) -> Document:
    return validate_document(parse_document(json.dumps(document).encode()), Sorting, asked or None)


def refused(document: dict[str, Any], **asked: Any) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        read(document, **asked)
    return caught.value


def test_a_good_document_is_read() -> None:
    found = read({**GOOD, "overall_score": 3, "version": "abc", "numpy_buildinfo": {"blas": ["x"]}})
    assert found.indicator is Sorting
    assert found.component == "numpy"
    assert found.parameters == {"n": 5, "library": "numpy", "most": 2.0, "old": None}
    assert found.results == {"elapsed_ms": 1.5, "swaps": None}
    assert found.checks == GOOD["@checks"]
    assert (found.overall_score, found.version) == (3.0, "abc")
    assert found.build_info == {"numpy_buildinfo": {"blas": ["x"]}}
    assert found.failed_checks == ()
    assert found.samples == {}


def test_a_field_is_found_by_its_alias_and_component_is_another_word_for_framework() -> None:
    document = changed("framework", to=...)
    assert read({**document, "component": "torch"}).component == "torch"
    assert read(document).component is None
    assert read(changed("@parameters", "OLD_NAME", to=3)).parameters["old"] == 3
    # The name behind it was not announced to the script.
    assert refused(changed("@parameters", "old", to=3)).status == "invalid document"


def test_a_framework_is_in_lower_case_and_told_once() -> None:
    document = changed("framework", to="PyTorch")
    assert read(document).component == "pytorch"
    assert name_framework("PyTorch", {"torch"}) == "torch"
    assert read({**document, "component": "torch"}).component == "torch"
    assert "framework and component differ: PyTorch, numpy" in refused({**document, "component": "numpy"}).reason


def test_a_key_given_twice_is_named() -> None:
    with pytest.raises(DocumentError, match="the key 'b' is given twice in one object"):
        parse_document(b'{"a": {"b": 1, "b": 1}}')


@pytest.mark.parametrize(
    ("stdout", "status"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"{}{}", "not JSON"),
        (b'{"a": 1}\nbye', "not JSON"),
        (b"[1]", "not JSON"),
        (b'"text"', "not JSON"),
        (b'{"a": 1, "a": 2}', "invalid document"),
        (b'{"a": {"b": 1, "b": 1}}', "invalid document"),
        (b"\xff\xfe{}", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": NaN}', "not finite"),
        (b'{"a": [-Infinity]}', "not finite"),
        (b'{"a": 1e999}', "not finite"),
        (b'{"a": ' + b"9" * 30 + b"}", "invalid document"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"[" * 30 + b"]" * 30 + b"}", "invalid document"),
        (b'{"a": ' * 5_000 + b"1" + b"}" * 5_000, "not JSON"),
        (b" " * (MAX_STDOUT_BYTES + 1), "too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_output_that_is_no_document_has_its_status(stdout: bytes, status: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(stdout)
    if stdout.startswith(b'{"a": ' * 2):
        # How deep the reader itself goes depends on its version; both ways it is no document.
        assert caught.value.status in ("not JSON", "invalid document")
    else:
        assert caught.value.status == status
    assert 0 < len(caught.value.reason) <= 500


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (changed("name", to=...), "name is None"),
        (changed("name", to="Sortin"), "not Sorting"),
        (changed("name", to=["Sorting"]), "not Sorting"),
        (changed("@parameters", to=...), "@parameters is missing"),
        (changed("@result", to=...), "@result is missing"),
        (changed("@result", to=[1]), "not an object"),
        (changed("@checks", to=None), "@checks is missing"),
        (changed("@checks", to=...), "Field required"),
        (changed("@checks", "wrong", to=...), "wrong: Field required"),
        (changed("@parameters", "n", to=...), "n is not told"),
        (changed("extra", to=1), "unknown key(s): extra"),
        (changed("@result", "more", to=1), "@result.more is not declared by Sorting"),
        (changed("@result", "n", to=5), "n stands in @parameters and in @result"),
        (changed("@parameters", "n", to=0), "n: "),
        (changed("@parameters", "n", to="5"), "n: "),
        (changed("@parameters", "n", to=True), "n: "),
        (changed("@parameters", "n", to=5.0), "n: "),
        (changed("@parameters", "n", to=None), "n: "),
        (changed("@parameters", "library", to="jax"), "library: "),
        (changed("@result", "elapsed_ms", to="1.5"), "elapsed_ms: "),
        (changed("@result", "elapsed_ms", to=None), "elapsed_ms: "),
        (changed("@result", "elapsed_ms", to=-1), "elapsed_ms: "),
        (changed("@checks", "sorted_", to=1), "sorted_: "),
        (changed("framework", to=5), "framework is 5"),
        (changed("framework", to="x" * 257), "framework is 'xxx"),
        (changed("version", to={}), "version is {}"),
        (changed("overall_score", to="5"), "overall_score is '5'"),
        (changed("overall_score", to=True), "overall_score is True"),
        (changed("@samples", to=[1]), "@samples is list"),
        (changed("@samples", to={"n": [1]}), "@samples.n"),
        (changed("@samples", to={"elapsed_ms": 1}), "@samples.elapsed_ms"),
        (changed("@samples", to={"elapsed_ms": ["1"]}), "contains something that is not a number"),
        (changed("@samples", to={"elapsed_ms": [True]}), "contains something that is not a number"),
        (changed("@samples", to={"elapsed_ms": [0] * (MAX_SAMPLES + 1)}), "10,001 numbers, at most 10,000"),
    ],
)
def test_an_invalid_document_says_what_is_wrong(document: dict[str, Any], told: str) -> None:
    error = refused(document)
    assert error.status == "invalid document"
    assert told in error.reason


@pytest.mark.parametrize("name", sorted(BASE_COLUMNS))
@pytest.mark.parametrize("part", ["@parameters", "@result", "@checks"])
def test_a_script_cannot_name_what_every_run_has(name: str, part: str) -> None:
    for spelled in (name, name.upper()):
        error = refused(changed(part, spelled, to=-1))
        assert error.reason == f"{part}.{spelled}: every run has a column of this name"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("key", "part"), [("@result", "elapsed_ms"), ("@samples", "elapsed_ms"), ("overall_score", None)]
)
def test_a_value_that_only_python_calls_a_number_is_not_finite(key: str, part: str | None, value: float) -> None:
    wrong = {part: [value] if key == "@samples" else value} if part else value
    with pytest.raises(DocumentError) as caught:
        validate_document({**GOOD, key: wrong}, Sorting)
    assert caught.value.status == "not finite"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("error", 0.5, None),
        ("error", 0.5000001, "error is 0.5 ULP, at most 0.5 ULP is allowed"),
        ("error", 3.0866, "error is 3.087 ULP, at most 0.5 ULP is allowed"),
        ("error_most", 2.0, None),
        ("error_most", 2.5, "error_most is 2.5, at most 2 is allowed"),
        ("wrong", 7, "wrong is 7, not 0"),
        ("sorted_", False, "sorted_ is False, not True"),
        ("digest", "anything", None),
    ],
)
def test_a_check_that_does_not_pass_is_a_sentence(name: str, value: Any, sentence: str | None) -> None:
    found = read(changed("@checks", name, to=value))
    assert found.failed_checks == (() if sentence is None else (sentence,))
    assert found.results == {"elapsed_ms": 1.5, "swaps": None}


def test_an_output_at_the_limit_is_read_and_samples_are_kept_as_numbers() -> None:
    text = b'{"a": 1}'
    assert parse_document(text + b" " * (MAX_STDOUT_BYTES - len(text))) == {"a": 1}
    with pytest.raises(DocumentError):
        parse_document(text, max_bytes=len(text) - 1)
    assert read(changed("@samples", to={"elapsed_ms": [1, 2.5]})).samples == {"elapsed_ms": [1.0, 2.5]}
    assert read(changed("@samples", to={})).samples == {}


def test_what_was_asked_for_must_have_been_used() -> None:
    assert read(GOOD, n=5, most=2, library="numpy").parameters["n"] == 5
    assert refused(GOOD, n=6).reason == "@parameters.n: 6 was asked for, 5 was used"
    assert refused(GOOD, library="torch").status == "invalid document"
    # Null asks for nothing.
    assert read(GOOD, old=None).parameters["old"] is None
    assert refused(GOOD, old=4).reason == "@parameters.old: 4 was asked for, None was used"


def test_a_reason_is_bounded_however_long_a_document_is() -> None:
    long = changed("x" * 100_000, to=1)
    assert len(refused(long).reason) <= 500
    many = {**GOOD, **{f"key_{k}": 1 for k in range(1_000)}}
    assert refused(many).reason == "unknown key(s): key_0, key_1, key_2, key_3, key_4 and 995 more"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def status_of(stdout: bytes) -> str:
    """How an output is taken; anything but a DocumentError comes through."""
    try:
        validate_document(parse_document(stdout), Sorting)
    except DocumentError as error:
        return error.status
    return "ok"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_document_have_a_status(stdout: bytes) -> None:
    assert status_of(stdout) in {"empty", "not JSON", "not finite", "invalid document"}


KEYS = [*GOOD, "component", "version", "overall_score", "@samples", "x_buildinfo"]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), json_values))
def test_any_values_of_known_keys_have_a_status(parts: dict[str, Any]) -> None:
    assert status_of(json.dumps({**GOOD, **parts}).encode()) in {"ok", "not finite", "invalid document", "not JSON"}


@settings(max_examples=100, deadline=None)
@given(
    part=st.sampled_from(["@parameters", "@result", "@checks"]),
    values=st.dictionaries(st.text(max_size=9), json_values),
)
def test_only_known_names_within_a_part_are_ever_good(part: str, values: dict[str, Any]) -> None:
    status = status_of(json.dumps({**GOOD, part: {**GOOD[part], **values}}).encode())
    assert status != "ok" or values.keys() <= GOOD[part].keys() | {"swaps", "OLD_NAME"}


@pytest.mark.parametrize("text", ['{"name": "\\ud800"}', '{"\\udc00": 1}', '{"a": ["\\ud83d"]}'])
def test_half_a_pair_of_code_units_is_no_text_but_a_whole_one_is(text: str) -> None:
    with pytest.raises(DocumentError, match="an unpaired surrogate") as caught:
        parse_document(text.encode())
    assert caught.value.status == "invalid document"
    assert parse_document(b'{"name": "\\ud83d\\ude00"}') == {"name": "\U0001f600"}
