"""Parameters: read without running, typed without guessing, secrets refused and never repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.parameters import judge_world
from workbench.cli import run_output
from workbench.core.errors import ConfigError, InputError
from workbench.core.samples import find_sample
from workbench.execution import discovery, parameters

CELL = '''
"""What the user may set."""
from typing import Literal

event_log: str = "../data/app.zstd"  # Spark event log
sql_ids: list[int] = []  # only these; all without
top_operators: int = 10  # rows of the table
ratio: float = 0.5  # share, 0 to 1
mode: Literal["fast", "slow"] = "fast"  # how
repeats: Literal[1, 3] = 1
limit: int | None = None  # at most so many
verbose: bool = False
labels: list[str] = ["a"]
api_key_env: str | None = None  # NAME of the variable
'''
NOTEBOOKS = Path(__file__).parents[1] / "fakes" / "notebooks"


@pytest.fixture
def declared() -> tuple[parameters.Parameter, ...]:
    return parameters.parse_parameters(CELL)


def resolved(
    declared: Any, texts: dict[str, str] | None = None, values: dict[str, Any] | None = None
) -> dict[str, Any]:
    return parameters.resolve_values(declared, texts, values, where="01_speedup").given


def refusal(declared: Any, texts: dict[str, str] | None = None, values: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parameters.resolve_values(declared, texts, values, where="01_speedup")
    return str(caught.value)


def test_names_types_defaults_and_comments_are_read_in_order(declared: Any) -> None:
    assert [str(item) for item in declared][:3] == [
        "event_log: str = '../data/app.zstd'  # Spark event log",
        "sql_ids: list[int] = []  # only these; all without",
        "top_operators: int = 10  # rows of the table",
    ]
    assert [item.type for item in declared][3:7] == [float, Literal["fast", "slow"], Literal[1, 3], int | None]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("event_log", "3.10", "3.10"),
        ("event_log", "007", "007"),
        ("event_log", "nan", "nan"),
        ("event_log", "", ""),
        ("top_operators", "7", 7),
        ("top_operators", "-7", -7),
        ("sql_ids", "[1, 2]", [1, 2]),
        ("sql_ids", "1,2", [1, 2]),
        ("sql_ids", "[]", []),
        ("sql_ids", "", []),
        ("ratio", "1e-3", 0.001),
        ("ratio", "2", 2.0),
        ("mode", "slow", "slow"),
        ("repeats", "3", 3),
        ("limit", "none", None),
        ("limit", "5", 5),
        ("verbose", "Yes", True),
        ("verbose", "false", False),
        ("labels", "[3.10, 'a, b', \"\"]", ["3.10", "a, b", ""]),
    ],
)
def test_a_text_becomes_the_declared_type(declared: Any, name: str, text: str, value: Any) -> None:
    found = resolved(declared, {name: text})[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("top_operators", "3.10"),
        ("top_operators", "1_000"),
        ("top_operators", ""),
        ("sql_ids", "1,,2"),
        ("sql_ids", "[1, x]"),
        ("ratio", "nan"),
        ("ratio", "inf"),
        ("ratio", "1e999"),
        ("mode", "Fast"),
        ("repeats", "2"),
        ("limit", "some"),
        ("verbose", "1"),
    ],
)
def test_a_text_that_does_not_spell_the_type_is_refused(declared: Any, name: str, text: str) -> None:
    assert refusal(declared, {name: text}).startswith(f"{name}: {text!r} is not ")


@given(st.text())
def test_any_text_given_to_a_str_stays_as_it_is(text: str) -> None:
    assert resolved(parameters.parse_parameters('name: str = ""'), {"name": text}) == {"name": text}


@given(st.lists(st.integers()))
def test_a_list_of_numbers_survives_being_spelled(numbers: list[int]) -> None:
    assert resolved(parameters.parse_parameters("ids: list[int] = []"), {"ids": str(numbers)}) == {"ids": numbers}


def test_all_problems_are_told_at_once(declared: Any) -> None:
    message = refusal(declared, {"top_operators": "x", "mode": "y"}, {"ratio": "0.5", "unknown": 1})
    assert [line.split(":")[0] for line in message.splitlines()[:4]] == ["unknown", "top_operators", "mode", "ratio"]


def test_an_unknown_parameter_is_answered_with_the_closest_and_with_all(declared: Any) -> None:
    message = refusal(declared, {"top_operator": "5"})
    assert "did you mean top_operators?" in message
    assert all(str(item) in message for item in declared)
    assert "do: workbench run 01_speedup --parameters" in message


@pytest.mark.parametrize("name", ["event_log", "labels"])
def test_an_unquoted_version_in_yaml_is_refused_with_the_advice_to_quote_it(
    tmp_path: Path, declared: Any, name: str
) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(f"{name}: {'[3.10]' if name == 'labels' else '3.10'}\n")
    assert "quote it" in refusal(declared, values=parameters.read_values_file(file))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("top_operators: '7'", "without quotes"),
        ("top_operators: 7.0", "7.0 (float) is not a whole number"),
        ("verbose: 1", "1 (int) is not true or false"),
        ("ratio: .inf", "inf (float) is not a number"),
        ("sql_ids: ['1']", "is not of type list[int]"),
    ],
)
def test_yaml_values_keep_their_type(tmp_path: Path, declared: Any, line: str, problem: str) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(line)
    assert problem in refusal(declared, values=parameters.read_values_file(file))


def test_a_whole_number_may_stand_for_a_float(declared: Any) -> None:
    assert resolved(declared, values={"ratio": 1}) == {"ratio": 1.0}


def test_the_command_line_wins_over_the_file(declared: Any) -> None:
    assert resolved(declared, {"top_operators": "5"}, {"top_operators": 7, "verbose": True}) == {
        "top_operators": 5,
        "verbose": True,
    }


def test_the_config_holds_all_parameters_and_given_only_those_given(declared: Any) -> None:
    found = parameters.resolve_values(declared, {"top_operators": "5"})
    assert found.config["top_operators"] == 5
    assert found.config["mode"] == "fast"
    assert len(found.config) == len(declared)
    assert found.given == {"top_operators": 5}


@pytest.mark.parametrize("name", ["api_key", "hub_token", "db_password", "client_secret", "TOKEN"])
def test_a_secret_is_refused_with_advice_and_not_repeated(declared: Any, name: str) -> None:
    for message in (refusal(declared, {name: "s3cr3t-value"}), refusal(declared, values={name: "s3cr3t-value"})):
        assert f"({name}_env)" in message
        assert "s3cr3t-value" not in message


@pytest.mark.parametrize("text", ["[x=1,fs.s3a.secret.key=Zq7c4nary]", "fs.s3a.secret.key=Zq7c4nary"])
def test_a_setting_that_is_a_secret_is_refused_with_what_to_do_and_not_repeated(declared: Any, text: str) -> None:
    values = {"labels": text.strip("[]").split(",")}
    for said in (refusal(declared, {"labels": text}), refusal(declared, values=values)):
        assert "labels: what is given for fs.s3a.secret.key may be a secret" in said
        assert "fs.s3a.secret.key=${env.NAME}" in said
        assert "spark-defaults.conf" in said
        assert "c4nary" not in said
    for name in ("labels", "top_operators"):
        assert "c4nary" not in refusal(declared, {name: text.removesuffix("]") + '"'})
    assert "may be a secret" in refusal(parameters.parse_parameters(f"labels: list[str] = {values['labels']!r}"))


def test_a_setting_may_name_the_variable_that_holds_a_secret(declared: Any) -> None:
    text = "fs.s3a.secret.key=${env.S3_KEY}"
    assert resolved(declared, {"labels": f"[{text}]"})["labels"] == [text]


@pytest.mark.parametrize(
    "url", ["s3a://KEYID:c4nary@bucket/log", "https://c4nary@host/log", "https://u:c4n@ry@host/log"]
)
def test_a_url_with_a_user_or_password_is_refused_and_not_repeated(declared: Any, url: str) -> None:
    said = refusal(declared, {"event_log": url})
    assert "written to files" in said
    assert "environment variables" in said
    assert "c4n" not in said
    assert "c4n" not in refusal(declared, {"top_operators": url})


def test_a_container_before_the_account_is_no_user(declared: Any) -> None:
    url = "abfss://logs@account.example/app"
    assert resolved(declared, {"event_log": url})["event_log"] == url


def test_a_notebook_that_declares_a_secret_is_refused_even_without_a_value() -> None:
    assert "secrets are not passed" in refusal(parameters.parse_parameters('api_key: str = ""'))


@pytest.mark.parametrize("pasted", ["sk-live-0123456789", "AKIAIOSFODNN7EXAMPLE", "sk_live_abcdef", "A=B", "nul\0"])
def test_a_key_pasted_for_a_variables_name_is_not_repeated(declared: Any, pasted: str) -> None:
    for message in (refusal(declared, {"api_key_env": pasted}), refusal(declared, values={"api_key_env": pasted})):
        assert message.startswith("api_key_env: ")
        assert pasted not in message


def test_a_wrongly_typed_key_is_not_repeated(declared: Any) -> None:
    assert "12345678" not in refusal(declared, values={"api_key_env": 12345678})


def test_a_variable_that_is_set_is_taken_and_named(declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", "a long secret")
    assert parameters.resolve_values(declared, {"api_key_env": "SERVICE_KEY"}).secret_variables == ("SERVICE_KEY",)


def test_a_secret_too_short_to_be_cut_out_is_refused(declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", "abc")
    assert "fewer than 4 characters" in refusal(declared, {"api_key_env": "SERVICE_KEY"})


def test_items_of_a_list_may_say_what_their_variable_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = parameters.parse_parameters("header_env: list[str] = []")
    monkeypatch.setenv("SERVICE_KEY", "Zq7-a-long-key")
    found = parameters.resolve_values(declared, values={"header_env": ["X-Api-Key=SERVICE_KEY"]})
    assert (found.config["header_env"], found.secret_variables) == (["X-Api-Key=SERVICE_KEY"], ("SERVICE_KEY",))
    said = refusal(declared, values={"header_env": ["X-Api-Key=sk-12345678"]})
    assert "is not the name of an environment variable" in said
    assert "12345678" not in said


def test_a_notebooks_own_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVICE_KEY", raising=False)
    assert "(SERVICE_KEY) is not set" in refusal(parameters.parse_parameters('api_key_env: str = "SERVICE_KEY"'))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("a: int = 1\nb: int = a * 2", "not a literal"),
        ("a: dict[int, int] = {}", "type of a parameter is not supported"),
        ("a: dict[str] = {}", "type of a parameter is not supported"),
        ("a: Any = 1", "type of a parameter is not supported"),
        ("a: __import__('os').sep = 1", "type of a parameter is not supported"),
        ("a = (1, 2)", "parameter has no type"),
        ("a: int = 1\na: int = 2", "parameter is set twice"),
        ("import os", "not a parameter"),
        ("a: int", "not a parameter"),
        ("a: int = (", "parameters cell is no Python"),
        ('a: "int |" = 1', "type of a parameter is not supported"),
        ("a: Literal[b] = 1", "type of a parameter is not supported"),
    ],
)
def test_a_cell_that_holds_more_than_annotated_literals_is_refused(source: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parameters.parse_parameters(source)


def test_a_plain_literal_has_its_own_type() -> None:
    assert parameters.parse_parameters("top = 5")[0].type is int


def test_a_default_that_is_not_of_its_type_is_told() -> None:
    assert "the notebook's default 'x' (str) is not a whole number" in refusal(
        parameters.parse_parameters('n: int = "x"')
    )


@pytest.mark.parametrize("name", ["model_config", "json", "_private", "copy", "schema"])
def test_any_python_name_can_be_a_parameter(name: str) -> None:
    assert resolved(parameters.parse_parameters(f"{name}: int = 1"), {name: "2"}) == {name: 2}


def test_a_notebook_without_a_parameters_cell_has_none() -> None:
    assert parameters.read_parameters(json.loads((NOTEBOOKS / "no_parameters_cell.ipynb").read_text())) == ()


def test_two_parameters_cells_are_refused() -> None:
    with pytest.raises(InputError, match="more than one cell"):
        parameters.read_parameters(json.loads((NOTEBOOKS / "two_parameters_cells.ipynb").read_text()))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("- 1", "not a mapping"),
        ("a: [", "not YAML"),
        ("a: 1\na: 2", "given twice"),
        ("1: 2", "not a mapping"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("a: \x01", "not YAML"),
    ],
)
def test_a_bad_parameters_file_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        parameters.read_values_file(file)


def test_an_empty_parameters_file_gives_nothing(tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text("# nothing yet\n")
    assert parameters.read_values_file(file) == {}


def test_a_missing_parameters_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the parameters file"):
        parameters.read_values_file(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("name", "given_text", "expected"),
    [
        ("event_log", "logs/app.zstd", "{base}/logs/app.zstd"),
        ("event_log", "not/there", "{base}/not/there"),
        ("event_log", "s3://bucket/app", "s3://bucket/app"),
        ("event_log", "/abs/app", "/abs/app"),
        ("event_log", "beside.zstd", "beside.zstd"),
        ("label", "logs/app.zstd", "{base}/logs/app.zstd"),
        ("label", "logs", "logs"),
        ("label", "a/b", "a/b"),
        ("event_log", "", ""),
        ("source", "points.db", "{base}/points.db"),
        ("source", "not-there.db", "{base}/not-there.db"),
        ("source", "postgresql://host/name", "postgresql://host/name"),
        ("model", "points.db", "points.db"),
        ("label", "a" * 5000, "a" * 5000),
    ],
)
def test_relative_paths_start_where_the_user_stands(tmp_path: Path, name: str, given_text: str, expected: str) -> None:
    base, folder = tmp_path / "base", tmp_path / "notebooks"
    (base / "logs").mkdir(parents=True)
    (base / "logs" / "app.zstd").touch()
    folder.mkdir()
    (folder / "beside.zstd").touch()
    (base / "points.db").touch()
    (tmp_path / "sample.db").touch()
    declared = parameters.parse_parameters(
        'event_log: str = "x"\nlabel: str = "y"\nsource: str = "../sample.db"\nmodel: str = "owner/model"'
    )
    found = parameters.resolve_values(declared, {name: given_text})
    found = parameters.make_paths_absolute(found, declared, base=base, notebook_folder=folder)
    assert found.given[name] == found.config[name] == expected.format(base=base)


def test_paths_in_a_list_are_made_absolute_too(tmp_path: Path) -> None:
    declared = parameters.parse_parameters("event_logs: list[str] = []")
    found = parameters.resolve_values(declared, {"event_logs": "a,/b"})
    found = parameters.make_paths_absolute(found, declared, base=tmp_path, notebook_folder=tmp_path / "n")
    assert found.given == {"event_logs": [str(tmp_path / "a"), "/b"]}


def test_a_folder_of_notebooks_says_what_each_answers_and_needs() -> None:
    rows = {row["notebook"]: row for row in discovery.list_questions().to_dicts()}
    assert all(row["question"].endswith("?") and row["needs"] for row in rows.values()), rows
    assert rows["08_profile"]["needs"] == "one event log"
    assert "_template" not in rows


def test_lines_of_ipython_set_no_parameter() -> None:
    source = "%matplotlib inline\n!pip list\nx: int = 1  # rows"
    assert [str(parameter) for parameter in parameters.parse_parameters(source)] == ["x: int = 1  # rows"]


def test_what_is_no_python_is_shown_with_its_line_and_with_what_to_do() -> None:
    with pytest.raises(InputError) as caught:
        parameters.parse_parameters("x: int = 1\n%%bash\necho hi")
    assert "line 2: " in str(caught.value)
    assert "%%bash" in str(caught.value)
    assert "move all else into the cell before" in str(caught.value)


NESTED = """
limits: dict[str, list[float]] = {"eu": [0.5]}
stacks: list[dict[str, str]] = []
anything: Dict[str, Any] | None = None
regions = {"eu": {"rates": [1, 2]}}
mixed = ["a", 1]
versions = ["3.9"]
day = None
"""


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("limits", '{"eu": [1, 0.25], "us": []}', {"eu": [1.0, 0.25], "us": []}),
        ("stacks", '[{"numpy": "2.2"}]', [{"numpy": "2.2"}]),
        ("anything", '{"a": [null, {"b": true}]}', {"a": [None, {"b": True}]}),
        ("anything", "none", None),
        ("regions", "{}", {}),
        ("mixed", "[[1], 2.5]", [[1], 2.5]),
        ("versions", "[3.10]", ["3.10"]),
        ("versions", '["a, b", "say \\"x\\""]', ["a, b", 'say "x"']),
        ("day", "none", None),
    ],
)
def test_nested_values_are_json(name: str, text: str, value: Any) -> None:
    found = resolved(parameters.parse_parameters(NESTED), {name: text})[name]
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "limits",
            "{eu: [1]}",
            "not JSON: Expecting property name enclosed in double quotes at line 1, column 2; write a dict such as {",
        ),
        ("limits", "[1]", "write a dict such as {"),
        ("limits", '{"eu": [1, "x"]}', """limits: at ["eu"][1]: 'x' (str) is not a number"""),
        ("limits", '{"eu": 1}', 'limits: at ["eu"]: 1 (int) is not a list'),
        ("anything", '{"a": NaN}', 'anything: at ["a"]: nan is not a finite number'),
        ("anything", '{"a": 1, "a": 2}', "a name is given twice: a"),
        ("anything", "[" * 30 + "]" * 30, "write a dict such as"),
        ("mixed", "[" * 30 + "]" * 30, "nested too deeply"),
        ("mixed", '{"a": 1}', 'write a list such as ["a", 1]'),
        ("day", "2026-01-01", "declare in the parameters cell what else it may be"),
    ],
)
def test_nested_values_of_another_type_are_refused_by_their_place(name: str, text: str, said: str) -> None:
    message = refusal(parameters.parse_parameters(NESTED), {name: text})
    assert message.startswith(f"{name}: ")
    assert said in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("regions: {eu: 2026-01-01}", 'regions: at ["eu"]: a date is no JSON value; put it in quotes'),
        ("regions: {1: a}", "regions: the key 1 is not a text; put it in quotes"),
        ("mixed: [!!set {a}]", "mixed: at [0]: a set is no JSON value"),
        ("limits: {eu: [.inf]}", 'limits: at ["eu"][0]: inf is not a finite number'),
        ("stacks: [{numpy: 2.2}]", """stacks: at [0]["numpy"]: 2.2 (float) is not a text"""),
        ("day: 5", "day: 5 (int) is not None, the only value that its default shows; declare in the parameters cell"),
    ],
)
def test_nested_values_of_yaml_keep_their_type_and_are_json(text: str, said: str) -> None:
    assert refusal(parameters.parse_parameters(NESTED), values=parameters.read_values_text(text)).startswith(said)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("regions = {'eu': (1, 2)}", 'at ["eu"]: a tuple is no JSON value'),
        ("regions: dict = {1: 'a'}", "the key 1 is not a text"),
    ],
)
def test_a_default_that_no_json_can_hold_matters_where_parameters_are_given(
    source: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        parameters.parse_parameters(source)
    assert said in str(caught.value)
    assert "move it into the next cell" in str(caught.value)
    path = tmp_path / "a.ipynb"
    cell = nbformat.v4.new_code_cell(f"rows = 1\n{source}", metadata={"tags": ["parameters"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert discovery.plan_runs([path])[0].resolved.config == {}
    with pytest.raises(InputError, match="no JSON value"):
        discovery.plan_runs([path], {"rows": 2})


def test_nested_defaults_are_listed_as_the_json_that_is_given() -> None:
    listed = [str(item) for item in parameters.parse_parameters(NESTED)]
    assert listed[0] == 'limits: dict[str, list[float]] = {"eu": [0.5]}'
    assert listed[3:] == [
        'regions: dict = {"eu": {"rates": [1, 2]}}',
        "mixed: list = ['a', 1]",
        "versions: list[str] = ['3.9']",
        "day: None = None",
    ]


@pytest.mark.parametrize(
    "value",
    [
        {"login": [{"api_key": "c4nary77"}]},
        {"conf": {"fs.s3a.secret.key": "c4nary77"}},
        {"confs": ["fs.s3a.secret.key=c4nary77"]},
        {"urls": [{"a": "https://me:c4nary77@host/x"}]},
        {"https://me:c4nary77@host/x": 1},
        {"login": {"api_key_env": "c4nary77-is-no-name"}},
    ],
)
def test_a_secret_at_any_depth_is_refused_and_not_repeated(value: dict[str, Any]) -> None:
    declared = parameters.parse_parameters("service: dict = {}")
    text = json.dumps(value)
    for said in (
        refusal(declared, values={"service": value}),
        refusal(declared, {"service": text}),
        refusal(declared, {"service": text[:-1]}),
        refusal(parameters.parse_parameters(f"service = {value!r}")),
        refusal(parameters.parse_parameters("service: dict[str, int] = {}"), values={"service": value}),
    ):
        assert said.startswith("service: ")
        assert "c4nary" not in said


def test_a_variable_named_at_any_depth_is_a_secret_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", "Zq7-a-long-key")
    value = {"login": [{"api_key_env": "SERVICE_KEY"}], "conf": {"fs.s3a.secret.key": "${env.SERVICE_KEY}"}}
    found = parameters.resolve_values(parameters.parse_parameters("service: dict = {}"), values={"service": value})
    assert found.secret_variables == ("SERVICE_KEY",)


def test_paths_at_any_depth_are_made_absolute(tmp_path: Path) -> None:
    declared = parameters.parse_parameters("sides: dict = {}")
    value = {"left": {"event_log": "a.zstd", "name": "a"}, "logs": ["b", "s3://bucket/c"]}
    found = parameters.resolve_values(declared, values={"sides": value})
    found = parameters.make_paths_absolute(found, declared, base=tmp_path, notebook_folder=tmp_path / "n")
    assert found.given["sides"] == {
        "left": {"event_log": str(tmp_path / "a.zstd"), "name": "a"},
        "logs": [str(tmp_path / "b"), "s3://bucket/c"],
    }


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_a_nested_value_arrives_unchanged_or_is_refused(first: int) -> None:
    assert {seed: wrong for seed in range(first, first + 100) if (wrong := judge_world(seed))} == {}


@pytest.mark.parametrize(
    ("text", "advice"), [("007", "write 7 "), ("+5", "write 5 "), ("-0", "write 0 "), ("1_0", "whole")]
)
def test_an_integer_in_another_form_is_no_number(text: str, advice: str) -> None:
    declared = parameters.parse_parameters("job: int = 1")
    with pytest.raises(ConfigError, match=advice):
        parameters.resolve_values(declared, {"job": text})
    assert parameters.resolve_values(parameters.parse_parameters("job: int | str = 1"), {"job": text}).config == {
        "job": text
    }


@pytest.mark.parametrize("text", ["010", "0x10", "1_000", "12:30", "+5"])
def test_a_file_of_parameters_has_no_integer_in_another_form(text: str, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(f"nested: [1, {{a: {text}}}]\n")
    with pytest.raises(ConfigError, match="an integer in another form") as refusal:
        parameters.read_values_file(path)
    assert f"'{text}'" in str(refusal.value)
    path.write_text(f"job: '{text}'\nn: -12\nzero: 0\n")
    assert parameters.read_values_file(path) == {"job": text, "n": -12, "zero": 0}


def test_samples_are_given_by_name_to_paths_of_any_notebook(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    source = 'event_log: str = "x"\nsource: str = "../here"\nlabel: str = ""\nsides = {}'
    declared = parameters.parse_parameters(source)
    given = {
        "event_log": "sample:failing",
        "source": "sample:points",
        "label": "sample:42",
        "sides": {"logs": ["sample:failing"]},
    }
    found = parameters.resolve_values(declared, values=given)
    found = parameters.make_paths_absolute(found, declared, base=tmp_path, notebook_folder=tmp_path / "notebooks")
    log = find_sample("sample:failing")
    assert found.given == {
        "event_log": log,
        "source": find_sample("sample:points"),
        "label": "sample:42",
        "sides": {"logs": [log]},
    }
    plan = discovery.RunPlan(Path("a.ipynb"), None, found)
    assert "-p event_log=sample:failing" in plan.command


def test_a_wrong_name_of_a_sample_is_answered_with_the_right_one(tmp_path: Path) -> None:
    declared = parameters.parse_parameters('event_log: str = "x"')
    found = parameters.resolve_values(declared, {"event_log": "sample:faling"})
    with pytest.raises(ConfigError, match="did you mean sample:failing"):
        parameters.make_paths_absolute(found, declared, base=tmp_path, notebook_folder=tmp_path)


def test_a_dict_that_is_called_as_its_notebook_is_that_parameter(tmp_path: Path) -> None:
    path = tmp_path / "01_limits.ipynb"
    cell = nbformat.v4.new_code_cell("rows = 1\nlimits = {'eu': 1}", metadata={"tags": ["parameters"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    (plan,) = discovery.plan_runs([path], {"limits": {"rows": 5}, "limits.rows": 2})
    assert plan.resolved.given == {"limits": {"rows": 5}, "rows": 2}
    given = run_output.read_values(None, ["limits: {a: 1}", "limits: {b: 2}"], [path])
    assert given == {"limits": {"b": 2}}
