"""Runs of one plan, by side: what `compare` and the notebook read. One folder, `sides.json`, and a run folder each.

The runs of two sides are made in turn (A B B A …), each on an emptied cluster, so that what the machine does to an hour
of them it does to both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench import files
from workbench.errors import InputError
from workbench.scaletest import facts, scenario
from workbench.scaletest.analysing import Analysis, analyse
from workbench.scaletest.comparing import compare
from workbench.scaletest.result_tables import COMPARISON

FILE = "sides.json"
CLOCKS = ("client", "server", "mixed")
MOST_REPEAT = 100
_MOST_BYTES = 1 << 20


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SideRun(_Strict):
    """A run of one side: when it came (`position` from 0), and where it lies, below the session's folder."""

    side: str
    position: int = Field(ge=0)
    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


class Session(_Strict):
    """What was compared: the sides in order (the first is A), and all runs that were planned, made or not."""

    format_version: int = Field(default=1, ge=1, le=1)
    scenario_sha256: str
    created_at: str
    sides: tuple[str, ...] = Field(min_length=1, max_length=8)
    repeat: int = Field(ge=1, le=MOST_REPEAT)
    runs: tuple[SideRun, ...] = Field(max_length=800)


@dataclass(frozen=True)
class Sides:
    """Analyses by side, each in the order in which its runs were made.

    Attributes
    ----------
    turns
        Of each run its turn, from 0: runs of one turn are a pair. Without it the k-th run is of the k-th turn.
    """

    folder: Path
    names: tuple[str, ...]
    runs: dict[str, tuple[Analysis, ...]]
    turns: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def everything(self) -> list[tuple[str, Analysis]]:
        """Every run with its side."""
        return [(name, one) for name in self.names for one in self.runs[name]]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing may be concluded: what makes single runs invalid."""
        return tuple(
            f"{name}, run {number + 1}: {reason}"
            for name in self.names
            for number, one in enumerate(self.runs[name])
            for reason in one.reasons
        )

    @property
    def imported(self) -> bool:
        """All runs were made by another tool: their totals are by two clocks, and their plans unknown."""
        return all(one.imported for _, one in self.everything)

    @property
    def total(self) -> tuple[str, str]:
        """The step that is the whole way, and its clock."""
        return ("sent to decided", "mixed") if self.imported else ("due to scheduled", "client")

    @property
    def pairs(self) -> list[tuple[Analysis, Analysis]]:
        """Runs of the first two sides that were made in the same turn; none for one side."""
        if len(self.names) < 2:
            return []
        by_turn = [
            dict(zip(self.turns.get(name, range(len(self.runs[name]))), self.runs[name], strict=True))
            for name in self.names[:2]
        ]
        return [(by_turn[0][turn], by_turn[1][turn]) for turn in sorted(by_turn[0].keys() & by_turn[1].keys())]

    def comparison(self, clock: str | None = None) -> pl.DataFrame:
        """Table COMPARISON of the first two sides, pairs by turn; without rows for one side, or where no turn has both.

        Parameters
        ----------
        clock
            Clock of the steps; that of `total` without it.
        """
        pairs = self.pairs
        if not pairs:
            return COMPARISON.frame([])
        first, second = ([pair[side].quantiles for pair in pairs] for side in (0, 1))
        return compare(first, second, names=(self.names[0], self.names[1]), clock=clock or self.total[1])

    def durations(self, step: str, clock: str | None = None) -> pl.DataFrame:
        """All durations of a step: `side, run, duration_s`; null where its end was never reached.

        Parameters
        ----------
        clock
            Whose times; without it the first of client, server, mixed that has the step in every run.
        """
        parts = [
            one.steps.filter(pl.col("step") == step).select(
                pl.lit(name).alias("side"), pl.lit(number + 1, dtype=pl.Int64).alias("run"), "clock", "duration_s"
            )
            for name in self.names
            for number, one in enumerate(self.runs[name])
        ]
        found = pl.concat(parts)
        everywhere = set(CLOCKS).intersection(*(set(part["clock"]) for part in parts if part.height))
        chosen = clock or next((one for one in CLOCKS if one in everywhere), CLOCKS[0])
        return found.filter(pl.col("clock") == chosen).drop("clock")


def write(folder: str | Path, session: Session) -> Path:
    """Write `sides.json`, whole or not at all."""
    return files.write_text(Path(folder) / FILE, session.model_dump_json(indent=1) + "\n")


def read_session(folder: str | Path) -> Session:
    """Read `sides.json`.

    Raises
    ------
    InputError
        It is not there, too large, or something else.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise InputError("no runs by side", where=folder, found=f"no {FILE}")
    try:
        return Session.model_validate_json(files.read_bounded(path, _MOST_BYTES))
    except ValidationError as error:
        found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
        raise InputError("not a list of runs by side", where=path, found=found) from None


def read(folder: str | Path) -> Sides:
    """The runs of a folder by side; of a single run's folder, that run as the only side.

    Raises
    ------
    InputError
        The folder holds neither, or no run of some side was made.
    """
    place = Path(folder)
    if not (place / FILE).is_file():
        if not (place / facts.FILE).is_file():
            raise InputError(
                "not a scale test", where=place, found=f"neither {FILE} nor {facts.FILE}", do="workbench scaletest run"
            )
        one = analyse(place)
        # Nobody knows the scheduler of an imported run.
        name = next(iter(one.test.schedulers), "imported" if one.imported else "run")
        return Sides(place, (name,), {name: (one,)})
    session = read_session(place)
    made = {name: _of_side(place, session, name) for name in session.sides}
    if missing := [name for name, found in made.items() if not found]:
        raise InputError("no run of a side", where=place, found=missing, do=f"workbench scaletest run --resume {place}")
    runs = {name: tuple(analyse(path) for path in found.values()) for name, found in made.items()}
    return Sides(place, session.sides, runs, {name: tuple(found) for name, found in made.items()})


def _of_side(place: Path, session: Session, name: str) -> dict[int, Path]:
    """Folders of the runs that were made, by turn: the k-th of a side by its place in the plan."""
    own = sorted((one for one in session.runs if one.side == name), key=lambda one: one.position)
    # A session that was broken off has runs that are not there, or not reduced.
    there = {turn: place / one.folder for turn, one in enumerate(own)}
    return {turn: path for turn, path in there.items() if (path / "tables" / "submissions.parquet").is_file()}


def together(a: Sequence[str | Path], b: Sequence[str | Path], names: tuple[str, str] = ("A", "B")) -> Sides:
    """Run folders that lie anywhere, as two sides.

    Raises
    ------
    InputError
        A folder is no scale test, or the plans differ.
    """
    runs = {name: tuple(analyse(one) for one in side) for name, side in zip(names, (a, b), strict=True)}
    made = [one for side in runs.values() for one in side]
    plans = {one.test.scenario_sha256 for one in made}
    # Also of one scenario, where each run was told its own scheduler.
    if len(plans) > 1 and len({_planned(one) for one in made}) > 1:
        raise InputError(
            "these runs had different plans",
            where="compare",
            found=sorted(plans)[:4],
            do="compare runs of one scenario: only the sides may differ",
        )
    return Sides(Path(), names, runs)


def _planned(one: Analysis) -> str:
    """Hash of a run's scenario but for its schedulers; with them where the folder has only the hash."""
    path = one.folder / facts.SCENARIO
    if not path.is_file():
        return one.test.scenario_sha256
    return scenario.sha256(scenario.load(path).model_copy(update={"schedulers": ()}))
