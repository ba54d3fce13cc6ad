"""Settings of a profile, of the notebook and of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from workbench.core.schema import StrictModel
from workbench.eventlog.config import EVENT_LOG, EVENT_LOGS
from workbench.live.file_picker import Pick
from workbench.live.form import FieldGroup, added_field

_RECORDING = Pick("recording", folders=("recording.json",))
_FACTORS = Pick("factor model", files=("*.json",))
MEMORY = r"^[1-9]\d{0,6}[kmgt]$"


class ProfileConfig(StrictModel):
    """Settings of `workbench speedup profile`."""

    event_log: Annotated[str, EVENT_LOG] = Field(
        min_length=1, description="Event log: a file, a rolling folder or a URL; the first application in it."
    )
    sql_ids: list[int] = Field(default=[], description="SQL executions to include; all when empty.")
    top_operators: int = Field(
        default=12, ge=1, le=100, description="Rows of the operator table and bars of its chart."
    )
    price_per_executor_h: float | None = added_field(None, "Price of an executor per hour.", ge=0)


class ScenarioConfig(StrictModel):
    """Settings of `workbench speedup what-if`."""

    event_log: Annotated[str, EVENT_LOG] = Field(
        min_length=1, description="Event log: a file, a rolling folder or a URL; of one application."
    )
    executors: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(
        default=[], description="Executors, all from the start; repeatable."
    )
    cores: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        default=[], description="Cores of each executor; repeatable, combined with --executors."
    )
    partitions: list[Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default=[], description="Shuffle partitions, where adaptive execution does not choose them; repeatable."
    )
    no_skew: bool = Field(default=False, description="Spread the rows of tasks that read far more than others.")
    no_stragglers: bool = Field(
        default=False, description="Give tasks that took far longer for no more rows the median's time."
    )
    broadcast: bool = Field(
        default=False, description="Send the smaller side of joins to all executors, in place of sorting both."
    )
    price_per_executor_h: float | None = Field(
        default=None,
        ge=0,
        description="Price of an executor as recorded, per hour; more cores cost as many times more.",
    )
    currency: str = Field(default="", max_length=16, description="Name of the price's currency, such as EUR.")


class WatchConfig(StrictModel):
    """Settings of `workbench speedup watch`."""

    logs: Annotated[str, EVENT_LOGS] = Field(
        min_length=1, description="Folder of event logs, a URL, or a history server: history:http://HOST:PORT."
    )
    job: str = Field(
        default="", description="Name of the application; dates in it are left aside, * stands for any text."
    )
    nights: int = Field(default=14, ge=5, le=1000, description="Earlier runs to compare with, the newest.")
    nights_per_alarm: float = Field(
        default=200.0, ge=10, le=1e6, description="One night in so many is called slower by chance."
    )


class PairConfig(StrictModel):
    """Settings of the notebook about a pair of engines and its factors."""

    FORM_GROUPS: ClassVar[tuple[FieldGroup, ...]] = (
        FieldGroup("Recording", ("engines", "suite", "only", "scale", "sessions"), when="record"),
        FieldGroup("More settings", ("seed_method", "query", "set_factors", "level")),
    )

    recording_folder: Annotated[str, _RECORDING] = Field(
        min_length=1, description="Folder of `workbench speedup record`; the source of the factors."
    )
    baseline: str = Field(default="", description="Baseline side; the recording's first if empty.")
    candidate: str = Field(default="", description="Candidate side; the recording's second if empty.")
    record: bool = added_field(False, "Record a pair with this machine's Spark now.")
    engines: list[str] = added_field(["spark", "comet"], "Record: two engines, baseline first.")
    suite: str = added_field("tpch", "Record: tpch, tpcds, or FILE.sql.")
    only: list[str] = added_field([], "Record: queries to take, all if empty.")
    scale: float = added_field(0.1, "Record: scale factor of tpch and tpcds.", gt=0, le=1000)
    sessions: int = added_field(5, "Record: sessions per engine, each a fresh JVM.", ge=1, le=100)
    seed_method: bool = added_field(False, "Also predict by RAPIDS' own scripts.")
    query: str = Field(default="", description="Query whose steps are shown first; the longest if empty.")
    set_factors: list[str] = Field(default=[], description="What-if factors, Operator=1.5 each.")
    level: float = Field(default=0.9, gt=0.5, lt=1, description="Confidence level of the intervals.")


class _FleetSettings(StrictModel):
    """Settings that the notebook of a fleet has always had."""

    logs: Annotated[list[str], EVENT_LOGS] = Field(min_length=1, description="Event logs, folders or URLs.")
    factors_file: Annotated[str, _FACTORS] = Field(
        default="", description="Factor model, a JSON file; that of the recording if empty."
    )
    recording_folder: Annotated[str, _RECORDING] = Field(
        default="", description="Folder of `workbench speedup record`; the source of the factors without a file."
    )
    baseline: str = Field(default="", description="Baseline side; the recording's first if empty.")
    candidate: str = Field(default="", description="Candidate side; the recording's second if empty.")
    set_factors: list[str] = Field(default=[], description="What-if factors, Operator=1.5 each.")
    price_baseline_per_h: float | None = Field(default=None, ge=0, description="Price of the baseline per hour.")
    price_candidate_per_h: float | None = Field(default=None, ge=0, description="Price of the candidate per hour.")
    top_operators: int = Field(
        default=12, ge=1, le=100, description="Rows of operator tables and bars of their charts."
    )
    level: float = Field(default=0.9, gt=0.5, lt=1, description="Confidence level of the intervals.")

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        if not (self.factors_file or self.recording_folder):
            raise ValueError("give factors_file or recording_folder")
        return self


class FleetConfig(_FleetSettings):
    """Settings of the notebook that ranks applications with factors."""

    FORM_GROUPS: ClassVar[tuple[FieldGroup, ...]] = (
        FieldGroup("Prices", ("price_baseline_per_h", "price_candidate_per_h", "price_of", "currency")),
        FieldGroup("More settings", ("factors_file", "baseline", "candidate", "set_factors", "top_operators", "level")),
    )

    currency: str = Field(default="", description="Name of the prices' currency, such as EUR.")
    price_of: Literal["cluster", "executor"] = added_field(
        "cluster", "What the prices are of: the cluster from start to end, or each executor while it is there."
    )


class NotebookConfig(_FleetSettings, ProfileConfig, PairConfig):
    """Settings of a notebook from before it was split: pair, fleet or profile, by `mode`."""

    FORM_GROUPS: ClassVar[tuple[FieldGroup, ...]] = ()

    mode: Literal["pair", "fleet", "profile"] = Field(
        default="pair",
        description="What to show; with the default pair, `event_log` selects profile and `logs` select fleet.",
    )
    recording_folder: Annotated[str, _RECORDING] = Field(
        min_length=1, description="Folder of `workbench speedup record`; the source of the factors."
    )
    logs: Annotated[list[str], EVENT_LOGS] = Field(default=[], description="Fleet: event logs, folders or URLs.")
    event_log: Annotated[str, EVENT_LOG] = Field(
        default="", description="Profile: event log, a file, a rolling folder or a URL."
    )

    @model_validator(mode="before")
    @classmethod
    def _mode_by_input(cls, inputs: Any) -> Any:
        """The mode that the inputs imply, where none was chosen."""
        if not isinstance(inputs, dict) or inputs.get("mode", "pair") != "pair":
            return inputs
        mode = "profile" if inputs.get("event_log") else "fleet" if inputs.get("logs") else "pair"
        return inputs | {"mode": mode}

    @model_validator(mode="after")
    def _inputs_of_mode(self) -> Self:
        if self.mode == "profile" and not self.event_log:
            raise ValueError("mode profile needs event_log")
        if self.mode == "fleet" and not self.logs:
            raise ValueError("mode fleet needs logs")
        return self


class _SuiteConfig(StrictModel):
    """Which queries on which tables and which Spark."""

    queries: str = Field(
        default="tpch",
        min_length=1,
        description="tpch, tpcds; FILE.sql, also an NDS power-run stream; FILE.py or a module with QUERIES.",
    )
    only: list[str] = Field(default=[], description="Name of a query to take, instead of all; repeatable.")
    data: str | None = Field(
        default=None,
        description="Folder or URL of Parquet tables, one view each; otherwise tpch or tpcds is generated.",
    )
    scale: float = Field(default=1.0, gt=0, le=1000, description="Scale factor of tpch and tpcds (1 is about 360 MB).")
    spark: str | None = Field(
        default=None,
        description="Line of Spark of sides that name none: 3.5 or 4.1, installed separately (a JDK is needed); "
        "by default the installed one.",
    )
    conf: list[str] = Field(default=[], description="Spark setting, key=value, of all sides; repeatable.")
    master: str = Field(default="local[*]", min_length=1, description="Spark master.")
    driver_memory: Annotated[str, StringConstraints(to_lower=True, pattern=MEMORY)] = Field(
        default="4g", description="Heap of the driver, such as 4g."
    )
    shuffle_partitions: int | None = Field(
        default=None, ge=1, le=1_000_000, description="4 on a local master by default, otherwise Spark's own."
    )
    comet_jar: Path | None = Field(
        default=None, description="Jar of Comet; without it Spark's Ivy or mvn downloads it into your cache."
    )

    @property
    def local(self) -> bool:
        """Whether Spark runs inside this machine's driver."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")

    def build_record_config(self, **changes: Any) -> RecordConfig:
        """A recording of these queries; `changes` are what it has otherwise or besides."""
        shared = {name: getattr(self, name) for name in RecordConfig.model_fields if name in type(self).model_fields}
        return RecordConfig(**shared | changes)


class PlanConfig(_SuiteConfig):
    """Which queries to plan on which engine, and the logs to hold the plans to."""

    engine: str = Field(default="comet", description="Engine of the candidate, with a line of Spark as in comet@4.1.")
    baseline_log: Annotated[str, EVENT_LOG] = Field(
        default="",
        description="Event log of the baseline with the same queries: its run shows the joins "
        "that adaptive execution will choose.",
    )
    check: Annotated[str, EVENT_LOG] = Field(
        default="", description="Event log of a run on the candidate: how many plans were as predicted."
    )
    timeout_s: float = Field(default=3600.0, gt=0, description="Planning that takes longer is ended.")


class RecordConfig(_SuiteConfig):
    """Which queries to record, on which sides, how often, and where to."""

    out: Path = Field(description="Folder of the recording; an unfinished one is completed.")
    engines: list[str] = Field(
        default=[],
        description="spark or comet, with a line of Spark as in comet@4.1: a side under this name; repeat for a pair.",
    )
    labels: list[str] = Field(default=[], description="Name in place of the engine's; one for each engine.")
    sides: list[str] = Field(default=[], description="A side with its own settings; repeatable.")
    power_run: bool = Field(
        default=False, description="Each query once per session, in stream order, with a CSV of times as NDS has it."
    )
    sessions: int | None = Field(
        default=None, ge=1, le=100, description="Sessions per side, each a fresh JVM (5; 1 with --power-run)."
    )
    passes: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Passes over the queries per session, the first is cold (3; 1 with --power-run).",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the order of sessions and queries.")
    scrub: bool = Field(default=False, description="Remove paths, host and user of this machine from the logs.")
    keep: Literal["logs", "facts"] = Field(
        default="logs", description="logs, or the facts that a pair needs of them, about 20 times smaller."
    )
    session_timeout_s: float = Field(default=7200.0, gt=0, description="A session that takes longer is killed.")
    fresh: bool = Field(default=False, description="Require an empty folder; never complete an earlier recording.")

    @model_validator(mode="after")
    def _check_passes(self) -> Self:
        if self.power_run and (self.passes or 1) > 1:
            raise ValueError("a Power Run has one pass: omit --passes, or --power-run")
        return self

    @property
    def n_sessions(self) -> int:
        """Sessions per side."""
        return self.sessions or (1 if self.power_run else 5)

    @property
    def n_passes(self) -> int:
        """Passes per session."""
        return self.passes or (1 if self.power_run else 3)


class ImproveConfig(_SuiteConfig):
    """Which suite to make faster, with which changes, and how much it may take."""

    out: Path = Field(description="Folder of the search; an unfinished one goes on.")
    tries: list[str] = Field(
        default=[], description="Setting to try, key=value, besides those of the advice; repeatable."
    )
    budget_s: float = Field(default=900.0, gt=0, description="Time after which no other change is tried.")
    ledger: Path | None = Field(
        default=None, description="Ledger of forecasts in which the proven gain of each query is kept."
    )
    session_timeout_s: float = Field(default=3600.0, gt=0, description="A session that takes longer is killed.")


class SampleConfig(_SuiteConfig):
    """Which run to sample, with which factors, and how much it may take."""

    out: Path = Field(description="Run folder to write; the recording of the slices is inside it.")
    baseline_log: Annotated[str, EVENT_LOG] = Field(
        min_length=1, description="Event log of the baseline, with queries of the suite."
    )
    factors: Annotated[Path, _FACTORS] = Field(description="Factor model that `generate` wrote.")
    budget: str = Field(
        default="10%",
        pattern=r"^\d{1,3}(\.\d{1,3})?%$",
        description="Time that the sample may take, as a share of that of the log's queries.",
    )
    engines: list[str] = Field(
        default=["spark", "comet"],
        min_length=2,
        max_length=2,
        description="Baseline and candidate, with a line of Spark as in comet@4.1; give both.",
    )
    passes: int = Field(default=2, ge=1, le=100, description="Runs of each query and side; the first is cold.")

    @property
    def budget_share(self) -> float:
        """The budget as a share."""
        return float(self.budget.removesuffix("%")) / 100
