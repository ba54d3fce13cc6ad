"""Commands made from models: the same command line as when each option is written out, and what they collect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from operator import not_
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from workbench.console.options import ModelCommand, OptionValues, build_group, take_options_from
from workbench.core.errors import ConfigError
from workbench.core.field_options import FieldOption, parse_json_option, parse_numbers, parse_pairs, setting
from workbench.core.files import SHIPPED
from workbench.sizing.commands.estimate import Price, Rate, Users
from workbench.sizing.config import SweepConfig

SAMPLE = str(SHIPPED / "data/samples/eventlogs/tpch_sf0.1.zstd")
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def describe(parameter: Any) -> dict[str, Any]:
    """What users of a command line depend on."""
    names = (
        "name",
        "param_type_name",
        "opts",
        "secondary_opts",
        "default",
        "required",
        "multiple",
        "nargs",
        "min",
        "max",
    )
    found = {name: getattr(parameter, name, None) for name in names}
    descriptor = getattr(parameter, "type_descriptor", None)
    return found | {"type": str(parameter.type if descriptor is None else descriptor.annotation)}


def list_parameters(function: Callable[..., Any]) -> list[dict[str, Any]]:
    app = typer.Typer(add_completion=False)
    cls = ModelCommand if hasattr(function, "workbench_options") else None
    app.command(cls=cls)(function)
    return [describe(parameter) for parameter in typer.main.get_command(app).params]


def call(function: Callable[..., Any], *words: str) -> None:
    app = typer.Typer(add_completion=False)
    app.command(cls=ModelCommand)(function)
    app(list(words), standalone_mode=False)


SWEEP_FIELDS = """
url protocol function target_confirm header_env gpus simulated model output_tokens extra_body method body answer_at
input_tokens_at output_tokens_at goals users rates arrivals trace think_time_s ramp_s least_samples most_samples tight
max_step_s timeout_s max_error_ratio retries processes max_requests max_duration_s max_tokens max_cost price_request
price_million_input price_million_output prompts prompt_key input_tokens input_cv unique_prefix seed
"""


@take_options_from(
    f"{SweepConfig.__module__}:SweepConfig",
    SWEEP_FIELDS,
    {
        "protocol": FieldOption(default="nat"),
        "extra_body": FieldOption(metavar="JSON"),
        "goals": FieldOption("goal", kind=list[str], metavar="GOAL", help="p95<=2 (s), 'ttft p99<=300ms'."),
        "users": FieldOption(parse=parse_numbers, metavar="N,N,…"),
        "rates": FieldOption(parse=parse_numbers, metavar="R,R,…"),
        "least_samples": "samples",
    },
    units={"s": "S"},
)
def run(
    given: OptionValues,
    target_users: Users = None,
    target_rate: Rate = None,
    gpu_price: Price = None,
    verify: Annotated[bool, typer.Option("--verify", help="Drive the predicted load at the end.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder below which the sweep gets its own.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the sweep in this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Drive a service."""
    COLLECTED.append(given)


COLLECTED: list[OptionValues] = []


def test_only_what_was_given_is_collected_by_field() -> None:
    COLLECTED.clear()
    call(run, "--think-time", "2", "--users", "1,2", "--header-env", "A=B", "--simulated", "--samples", "50")
    assert COLLECTED[0] == {
        "think_time_s": 2.0,
        "users": [1, 2],
        "header_env": {"A": "B"},
        "simulated": True,
        "least_samples": 50,
    }


def test_a_value_that_is_the_default_counts_as_given() -> None:
    COLLECTED.clear()
    call(run, "--protocol", "nat", "--seed", "0")
    assert COLLECTED[0] == {"protocol": "nat", "seed": 0}


class Settings(BaseModel):
    n_gpus: int = Field(ge=1, description="GPUs.")
    cleanup: bool = Field(True, description="Delete what was made.")
    mode: Literal["api", "kubectl"] = Field("api", description="How.")
    share: float = Field(0.5, gt=0, le=1, description="Share.")
    names: tuple[str, ...] = Field((), description="Names.")
    body: dict[str, Any] = Field({}, description="Body.")


def collect(*words: str, **rules: Any) -> OptionValues:
    found: list[OptionValues] = []

    @take_options_from(Settings, options=rules)
    def command(given: OptionValues) -> None:
        found.append(given)

    call(command, *words)
    return found[0]


def test_all_values_that_the_model_refuses_are_named_by_their_flags() -> None:
    given = collect("--n-gpus", "0", "--mode", "fly", "--share", "2")
    with pytest.raises(ConfigError) as refused:
        given.build_model(Settings)
    found = str(refused.value.facts["found"])
    assert [flag in found for flag in ("--n-gpus", "--mode", "--share")] == [True, True, True]


def test_a_switch_may_turn_a_field_off_and_a_list_becomes_what_the_field_is() -> None:
    off = FieldOption("no_cleanup", kind=bool, default=False, parse=lambda value, _: not_(value))
    assert collect("--n-gpus", "1", "--no-cleanup", "--names", "a", "--names", "b", cleanup=off) == {
        "n_gpus": 1,
        "cleanup": False,
        "names": ("a", "b"),
    }
    assert collect("--n-gpus", "1", cleanup=off) == {"n_gpus": 1}


def test_a_default_of_the_commands_own_counts_as_given() -> None:
    assert collect("--n-gpus", "1", share=FieldOption(default=0.25)) == {"n_gpus": 1, "share": 0.25}


def test_a_required_field_is_required() -> None:
    with pytest.raises(Exception, match="n_gpus"):
        collect()


@pytest.mark.parametrize(
    ("parse", "value"),
    [(parse_numbers, "1,x"), (parse_pairs, ["secret"]), (parse_json_option, "{"), (parse_json_option, "@no/such")],
)
def test_a_value_that_cannot_be_read_is_refused_by_its_flag(parse: Callable[[Any, str], Any], value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(value, "--flag")
    assert "--flag" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_json_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"a": [1]}')
    assert collect("--n-gpus", "1", "--body", f"@{tmp_path / 'body.json'}")["body"] == {"a": [1]}


def test_a_field_that_is_none_of_the_models_is_a_mistake_of_the_command() -> None:
    @take_options_from(Settings, ["fly"])
    def command(given: OptionValues) -> None: ...

    with pytest.raises(TypeError, match="fly"):
        list_parameters(command)


def test_a_group_lists_its_commands_without_the_model() -> None:
    code = f"""
import sys
import typer
from {build_group.__module__} import build_group
from typer.testing import CliRunner

from workbench.console.options import ModelCommand, OptionValues, take_options_from

@take_options_from("{SweepConfig.__module__}:SweepConfig", "gpus")
def run(given: OptionValues) -> None:
    '''Drive a service.'''

app = build_group("Area.")
app.command(cls=ModelCommand)(run)
try:
    app(["--help"])
except SystemExit:
    print([name for name in sys.modules if name.split(".")[0] == "pydantic" or name == "{SweepConfig.__module__}"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Drive a service." in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_tells_the_models_default_and_meaning() -> None:
    from typer.testing import CliRunner

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=ModelCommand)(run)
    told = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    meaning = SweepConfig.model_fields["think_time_s"].description
    assert f"--think-time S {meaning} [default: 0]" in told
    assert "[default: 200]" in told


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (["--field", "sample:tpch_sf0.1"], SAMPLE),
        (["--field=sample:eventlogs/tpch_sf0.1.zstd"], SAMPLE),
        (["--field", "name=sample:tpch_sf0.1"], f"name={SAMPLE}"),
        (["--field", "name=sample:42"], "name=sample:42"),
        (["--field", "data/samples/eventlogs/tpch_sf0.1.zstd"], SAMPLE),
    ],
)
def test_an_argument_that_names_a_sample_is_its_path(
    given: list[str], value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Log(BaseModel):
        field: str

    monkeypatch.chdir(tmp_path)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    seen = []

    @app.command(cls=ModelCommand)
    @take_options_from(Log, "field")
    def read(log: OptionValues) -> None:
        seen.append(log["field"])

    app(given, standalone_mode=False)
    assert seen == [value]


class Machine(BaseModel):
    cores: int = setting(2, "Cores.", "Machine", ge=1, flag="n_cores", metavar="N")
    disk: str = setting("", "Disk.", "Machine")
    seed: int = setting(0, "Seed.", "Method")
    color: str = setting("red", "Of no group.")


def test_a_command_takes_the_fields_of_the_groups_that_it_names_and_what_it_has_otherwise() -> None:
    app = build_group("Machines.")

    @app.command(cls=ModelCommand)
    @take_options_from(
        Machine, options={"seed": FieldOption(help="Its own.")}, groups=("Method", "Machine"), omit="disk"
    )
    def drive(values: OptionValues) -> None:
        """Drive."""
        print(values.build_model(Machine).model_dump())

    shown = CliRunner().invoke(app, ["drive", "--help"]).output
    assert shown.index("Method:") < shown.index("--seed") < shown.index("Machine:") < shown.index("--n-cores N")
    assert "Its own." in shown
    assert "--disk" not in shown
    assert "--color" not in shown
    assert CliRunner().invoke(app, ["drive", "--n-cores", "3"]).output.startswith("{'cores': 3, 'disk': ''")
    refused = CliRunner().invoke(app, ["drive", "--n-cores", "0"])
    assert isinstance(refused.exception, ConfigError)
