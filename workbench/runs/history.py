"""The runs of one notebook over time: figures with intervals, verdicts from run to run, and what else changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from workbench.core.errors import ConfigError
from workbench.core.formats import fit_answer
from workbench.core.units import find_unit_factor
from workbench.runs.catalogue import StoredRun
from workbench.runs.compare import Contrast, Verdict, compare_runs, judge_contrasts, scale_interval
from workbench.runs.levels import Fact, FigureLevels, LevelSearch, find_levels
from workbench.stats import Interval

MAX_HISTORY_RUNS = 50
# What a run concludes stands in its own row; here is what may explain it.
_OUTCOMES = ("status", "verdict", "answer", "reasons")


@dataclass(frozen=True)
class FigureHistory:
    """One figure over the runs, in one unit.

    `values`: By run; null in runs that lack it. `verdicts`: Against the last valid run before; null where there is
    none, and for runs that are not valid.
    """

    table: str
    row: str
    column: str
    unit: str
    values: tuple[Interval | None, ...]
    verdicts: tuple[Verdict | None, ...]

    @property
    def name(self) -> str:
        """Table, column and row in one text."""
        return f"{self.table}.{self.column}" + (f" {self.row}" if self.row else "")

    @property
    def n_told_apart(self) -> int:
        """Steps from run to run at which it went up or down."""
        return sum(verdict in ("HIGHER", "LOWER") for verdict in self.verdicts)


@dataclass(frozen=True)
class RunHistory:
    """Runs of one notebook, oldest first.

    `facts`: For each run what differs from the last valid one before it: kind, name, before, after.
    `figures`: Those that moved first, then in the order of the tables. `n_left_out`: Older runs beyond the limit.
    `levels`: Figures whose level changed.
    """

    runs: tuple[StoredRun, ...]
    facts: tuple[tuple[Fact, ...], ...]
    figures: tuple[FigureHistory, ...]
    n_left_out: int
    levels: LevelSearch = field(default_factory=LevelSearch)

    @property
    def answer(self) -> str:
        """The result in one sentence of at most 90 characters."""
        n_runs, levels = len(self.runs), self.levels
        if n_runs == 1:
            return "One run found; a history needs at least two."
        changed = [figure for figure in levels.figures if any(one.shape != "outlier" for one in figure.changes)]
        if changed:
            return self._name_first(changed[0], f"{len(changed)} of {levels.n_searched} figures changed their level")
        if far := [figure for figure in levels.figures if figure.changes[-1].shape == "outlier"]:
            counted = f"{len(far)} of {levels.n_searched} figures"
            return self._name_first(far[0], f"{counted} are far from their level in the last run")
        if moved := [figure for figure in self.figures if figure.n_told_apart]:
            counted = f"{len(moved)} of {len(self.figures)} figures"
            return self._name_first(moved[0], f"{counted} moved from one run to the next over {n_runs} runs")
        if self.figures:
            return f"No figure moved from one run to the next: {len(self.figures)} over {n_runs} runs."
        valid = sum(not run.objection for run in self.runs)
        return f"{n_runs} runs, {valid} of them valid: no figure has an interval in two of them."

    @staticmethod
    def _name_first(figure: FigureHistory | FigureLevels, text: str) -> str:
        return fit_answer(f"{text}, first {figure.name}.", f"{text}.")


def build_history(runs: Iterable[StoredRun], *, figures: Sequence[str] = ()) -> RunHistory:
    """How did the figures of a notebook go over its runs, and what changed beside them?

    `runs`: Of one area; the 50 newest are taken, and only those that succeeded have figures. `figures`: Only those
    whose name (`table.column row`) has one of these texts in it.

    Each run is compared with the last valid one before it; one that is not valid has no verdicts, and none after it is
    held against it. Verdicts hold for all steps of all figures together (Holm, 90 %, margin 2 %). Changes of level and
    slow drifts: `find_levels`.
    """
    # A run may be there twice, as a copy.
    ordered = sorted({run.run_id: run for run in runs}.values(), key=lambda run: (run.began, run.run_id))
    if areas := sorted({run.area for run in ordered}):
        if len(areas) > 1:
            raise ConfigError("runs of different areas", where="runs history", found=areas, do="name one area")
    else:
        raise ConfigError("no runs", where="runs history", do="workbench runs list")
    kept = ordered[-MAX_HISTORY_RUNS:]
    facts: list[tuple[Fact, ...]] = []
    contrasts: list[tuple[int, int, str, Contrast]] = []
    before: int | None = None
    for place, run in enumerate(kept):
        if run.state != "succeeded" or before is None:
            facts.append(())
        else:
            comparison = compare_runs(kept[before], run)
            columns = [("column", table.name, None, note) for table in comparison.tables for note in table.column_notes]
            facts.append((*(fact for fact in comparison.facts if fact[1] not in _OUTCOMES), *columns))
            contrasts += [(before, place, table.name, row) for table in comparison.tables for row in table.contrasts]
        before = before if run.objection else place
    # Join the contrasts of consecutive runs to figures: place of the run before, of the run, table, contrast. A figure
    # whose unit changes is one as long as a plain factor leads to its last unit, and else another figure.
    n_runs = len(kept)
    series: dict[tuple[str, str, str], list[_Series]] = {}
    judged = judge_contrasts([contrast for *_, contrast in contrasts])
    for (before, place, table, _), contrast in zip(contrasts, judged, strict=True):
        present = series.setdefault((table, contrast.row, contrast.column), [])
        one = _find_series(present, contrast.baseline_unit, n_runs)
        one.set_value(before, contrast.baseline, contrast.baseline_unit)
        one = _find_series(present, contrast.unit, n_runs)
        one.set_value(place, contrast.candidate, contrast.unit)
        one.verdicts[place] = contrast.verdict
    found = [
        FigureHistory(*key, one.unit, tuple(one.values), tuple(one.verdicts))
        for key, present in series.items()
        for one in present
        if any(value is not None and value.low is not None for value in one.values)
    ]
    stepped = sorted(found, key=lambda figure: -figure.n_told_apart)
    chosen = [one for one in stepped if not figures or any(text in one.name for text in figures)]
    levels = find_levels(kept, facts, figures=figures)
    if figures and not chosen and not levels.n_searched:
        raise ConfigError("no figure with this name", where="--figure", found=list(figures), do="leave it out")
    return RunHistory(tuple(kept), tuple(facts), tuple(chosen), len(ordered) - len(kept), levels)


@dataclass
class _Series:
    """Values and verdicts of a figure by run, in the unit that was set last."""

    unit: str
    values: list[Interval | None]
    verdicts: list[Verdict | None]

    def set_value(self, place: int, value: Interval, unit: str) -> None:
        """Set the value of a run; the others are converted to its unit."""
        factor = find_unit_factor(self.unit, unit) or 1.0
        self.values = [None if old is None else scale_interval(old, factor) for old in self.values]
        self.values[place], self.unit = value, unit


def _find_series(present: list[_Series], unit: str, n_runs: int) -> _Series:
    """The series that a value in this unit belongs to, a new one where there is none."""
    found = next((one for one in present if find_unit_factor(one.unit, unit) is not None), None)
    if found is None:
        found = _Series(unit, [None] * n_runs, [None] * n_runs)
        present.append(found)
    return found
