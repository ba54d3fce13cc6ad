"""Study of one operator: tag a query, dump, replay in a fresh process, check; with live controls."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from workbench.charts import renderer
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.core.formats import escape_html, format_number
from workbench.core.tables import Table
from workbench.live.status_line import SetStatus, live_status_line
from workbench.lore import summary
from workbench.lore.charts import chart_partitions, chart_ratios, chart_times
from workbench.lore.config import NotebookConfig, format_operator_id, parse_settings
from workbench.lore.invariants import check_outcome
from workbench.lore.replays.lore_session import LoreSession
from workbench.lore.replays.replay_outcome import ReplayOutcome, inspect_and_replay, replay_in_process
from workbench.lore.spark_bridge.query_runs import build_plan_table, choose_operator
from workbench.lore.spark_bridge.query_sources import OpenQuery, list_query_files
from workbench.lore.summary import find_differing_settings, format_answer
from workbench.lore.tables import PLAN_TREE
from workbench.report.display import CellDisplay, KeyNumber, headline, table
from workbench.runs.run_folder import Run

DUMP_FOLDER = "dump"
# Seconds of timed runs, after which no further turn begins; most sessions are decided before.
MEASURE_BUDGET_S = 10.0
MAX_OPERATORS = 150
LABEL_CHARS = 60
REASON_CHARS = 90
# Answer, times, ratios, partitions.
N_PLACES = 4
NOTHING = CellDisplay("", "")
INDENT_PX, MAX_INDENT_PX = 14, 280


@dataclass(frozen=True)
class Study:
    """Study of one operator of a query, or of one existing dump.

    `plan`: Table `tables.PLAN_TREE`; null without a query, or when the query failed.
    `query`: The open session in a live notebook; null when it has ended.
    `replays`: Process that replays in a live notebook, so that another operator does not wait for Spark; null without
    one.
    """

    config: NotebookConfig
    run: Run
    result: ReplayOutcome
    plan: pl.DataFrame | None
    why: str
    warnings: tuple[str, ...] = ()
    query: OpenQuery | None = None
    replays: LoreSession | None = None

    @property
    def answer(self) -> str:
        """Verification, time and comparison, in one sentence or two."""
        return summary.format_answer(self.result)

    @property
    def details(self) -> list[str]:
        """The verification, the time of A and the settings of B."""
        return summary.list_details(self.result)

    @property
    def conditions(self) -> tuple[str, ...]:
        """A replay runs the operator itself: nothing is simulated."""
        return ()

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Valid when the replay gave the original output, on both sides of a comparison."""
        return self.result.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of an invalid result."""
        return self.result.reasons

    @property
    def notes(self) -> tuple[str, ...]:
        """Reason for the operator, warnings of the dump, notes of the replay."""
        replayed = self.result.replayed
        return (f"Chosen: {self.why}", *self.warnings, *(replayed.notes if replayed is not None else ()))

    def key_numbers(self) -> list[KeyNumber]:
        """Key numbers below the answer."""
        return summary.build_key_numbers(self.result)

    def next_steps(self) -> list[str]:
        """Return at most two steps to take next."""
        below = self.config.dump_path and f"{self.config.dump_path}/{self.result.place.name}"
        return summary.list_next_steps(self.result, self.config.dump_folder or below)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """Declared tables with their rows, for the run folder."""
        return [*([(PLAN_TREE, self.plan)] if self.plan is not None else []), *self.result.tables()]

    def check(self) -> pl.DataFrame:
        """Check the invariants.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        return check_outcome(self.result, self.config.repeat, self.plan)

    def build_picker(self) -> Any:
        """Operators to pick from: controls in a live notebook, a table otherwise; null without a plan."""
        if self.plan is None:
            return None
        if self.query is None:
            return render_operators(self.plan)
        return OperatorControls(self)

    def close(self) -> None:
        """End the open session of a live notebook, and its process for replays."""
        if self.query is not None:
            self.query.close()
        if self.replays is not None:
            self.replays.close()

    def replay_operator(self, lore_id: int, partition: int | None, say: SetStatus = lambda _: None) -> ReplayOutcome:
        """Dump and replay another operator of the same query; its tables are not written."""
        if self.query is None:
            raise ConfigError("the query's session has ended", do="run the notebook's first code cells again")
        say(f"dumping loreId {lore_id} …")
        folder, _ = self.query.dump_operator(
            format_operator_id(lore_id, partition), dump_location(self.config, self.run)
        )
        say(f"replaying loreId {lore_id} in another process …")
        return _replay_place(folder, self.config, session=self.replays)


def build_study(config: NotebookConfig, run: Run) -> Study:
    """Tag, dump and replay as configured, and write the tables into the run folder.

    Raises
    ------
    InputError, ConfigError
        An input is missing or unusable, no such operator, an invalid setting.
    RunFailedError
        The fresh process died.
    """
    _parse_variant_settings(config)  # Refuses invalid settings before Spark starts.
    with live_status_line() as say:
        study = _study_dump(config, run, say) if config.dump_source else _study_query(config, run, say)
    for declared, frame in study.tables():
        run.write_table(declared, frame)
    return study


def dump_location(config: NotebookConfig, run: Run) -> Path:
    """Folder of the dumps: `dump_path`, or below the run folder."""
    return Path(config.dump_path) if config.dump_path else run.folder / DUMP_FOLDER


def _study_dump(config: NotebookConfig, run: Run, say: SetStatus) -> Study:
    place = Path(config.dump_folder)
    run.add_input(place, digest=False)
    say("replaying the dump in a fresh process …")
    return Study(config, run, _replay_place(place, config, config.partition), None, "the dump in dump_folder")


def _study_query(config: NotebookConfig, run: Run, say: SetStatus) -> Study:
    for path in list_query_files(config):
        run.add_input(path)
    say("starting Spark and running the query …")
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(contextlib.closing(OpenQuery(config)))
        plan = build_plan_table(opened.tree) if opened.tree is not None else None
        # Choose the operator to dump and the reason for it: the parameter's, or the one picked from the plan.
        if plan is None:
            ids, reason = "", f"the query failed in it: {opened.failure}"
        elif config.selection:
            ids, reason = config.selection, "named by the parameter ids"
        else:
            picked = choose_operator(plan)
            ids, reason = format_operator_id(picked.lore_id, config.partition), picked.reason
        # The query's times are taken: the other Spark may start beside the dump.
        session = stack.enter_context(LoreSession())
        session.start_spark(engine=config.engine)
        say(f"dumping {ids or 'the operator that fails'} …")
        folder, notes = opened.dump_operator(ids, dump_location(config, run))
        if renderer.is_headless():
            # Frees memory and cores for the replay.
            opened.close()
        say("replaying it in a fresh process …")
        study = Study(config, run, _replay_place(folder, config, session=session), plan, reason, tuple(notes))
        if not renderer.is_headless():
            study = replace(study, query=opened, replays=session)
            stack.pop_all()
        return study


def _replay_place(
    place: Path, config: NotebookConfig, partition: int | None = None, *, session: LoreSession | None = None
) -> ReplayOutcome:
    return inspect_and_replay(
        place,
        replay=replay_in_process if session is None else session.replay,
        level=config.level,
        partition=partition,
        repeat=config.repeat,
        budget_s=MEASURE_BUDGET_S,
        engine=config.engine,
        trust=config.trust,
        **_parse_variant_settings(config),
    )


def _parse_variant_settings(config: NotebookConfig) -> dict[str, dict[str, str]]:
    return {name: parse_settings(getattr(config, name), where=name) for name in ("confs_a", "confs_b")}


def render_operators(plan: pl.DataFrame) -> CellDisplay:
    """The operators of `tables.PLAN_TREE` for display; those that cannot be dumped with their reason."""
    shown = plan.select("lore_id", "operator", "rows_in", "n_rows", "time_ms", "span_ms", "refused")
    return table(shown, PLAN_TREE, caption="Operators; choose another one with ids", limit=MAX_OPERATORS)


class OperatorControls:
    """Live controls of a study: the plan as buttons, a field for the partition, and the last result.

    They work without a front end, for tests.
    """

    def __init__(self, study: Study) -> None:
        import ipywidgets

        self.study = study
        self.plan = study.plan if study.plan is not None else PLAN_TREE.frame([])
        self.picked = study.result.lore_id
        self.result: ReplayOutcome = study.result
        self.buttons: dict[int, Any] = {}
        self.lines = [self._build_operator_line(row) for row in self.plan.head(MAX_OPERATORS).rows(named=True)]
        self.partition = ipywidgets.Text(
            placeholder="all of them",
            description="Partition",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="200px"),
        )
        self.go = ipywidgets.Button(
            description="Dump and replay", button_style="primary", layout=ipywidgets.Layout(width="auto")
        )
        self.sentence = ipywidgets.HTML()
        self.go.on_click(lambda _: self.replay_operator())
        self._shown: list[Any] = []
        self.pick_operator(self.picked)

    def pick_operator(self, lore_id: int) -> None:
        """Mark the operator to dump next."""
        self.picked = lore_id
        for number, button in self.buttons.items():
            button.button_style = "info" if number == lore_id else ""
        self._show_status(f"loreId {lore_id} is selected.")

    def replay_operator(self) -> None:
        """Dump the selected operator, replay it and draw the result; an error is shown and changes nothing."""
        self.go.disabled = True
        try:
            self.result = self.study.replay_operator(self.picked, self._parse_partition(), self._show_status)
        except (WorkbenchError, ValueError) as error:
            self._show_status(str(error))
        else:
            self._show_status("")
            self._redraw()
        finally:
            self.go.disabled = False

    def build_box(self) -> Any:
        """Build a box with all controls, stacked vertically."""
        import ipywidgets

        left_out = self.plan.height - len(self.lines)
        more = [ipywidgets.HTML(f"<p>{left_out} more operators; use ids</p>")] if left_out > 0 else []
        tree = ipywidgets.VBox(self.lines + more, layout=ipywidgets.Layout(overflow="auto", max_height="520px"))
        bar = ipywidgets.Box([self.partition, self.go], layout=ipywidgets.Layout(flex_flow="row wrap"))
        return ipywidgets.VBox([tree, bar, self.sentence])

    def _ipython_display_(self) -> None:
        """Show the controls, and below them the last result."""
        from IPython.display import display

        display(self.build_box())  # type: ignore[no-untyped-call]
        # Empty outputs that the first replay fills.
        self._shown = [display(NOTHING, display_id=True) for _ in range(N_PLACES)]  # type: ignore[no-untyped-call]

    def _redraw(self) -> None:
        for handle, view in zip(self._shown, self._build_views(), strict=False):
            handle.update(view)

    def _build_views(self) -> list[Any]:
        """Views of the answer, times, ratios and partitions; empty where there is no data."""
        outcome = self.result
        answer = headline(
            answer=format_answer(outcome),
            verdict=outcome.verdict,
            reasons=outcome.reasons,
            details=summary.list_details(outcome),
        )
        return [
            # Without the headline's data, which the report would lift to its top.
            CellDisplay(answer.html, answer.text),
            chart_times(outcome.timings, outcome.times) if outcome.timings.height else NOTHING,
            chart_outcome_ratios(outcome) or NOTHING,
            chart_partitions(outcome.partitions),
        ]

    def _parse_partition(self) -> int | None:
        text = self.partition.value.strip()
        if text and not (text.isascii() and text.isdigit()):
            raise ValueError("The partition must be a whole number; leave it empty for all of them.")
        return int(text) if text else None

    def _build_operator_line(self, row: dict[str, Any]) -> Any:
        """Button and facts for one operator, a row of table TREE, indented by its depth."""
        import ipywidgets

        lore_id, reason = row["lore_id"], row["refused"]
        label = f"{'reused' if lore_id is None else lore_id} · {row['operator']}"
        button = ipywidgets.Button(
            description=label[:LABEL_CHARS],
            tooltip=(reason or row["text"])[:300],
            disabled=reason is not None,
            layout=ipywidgets.Layout(
                width="auto", margin=f"1px 0 1px {min(INDENT_PX * row['depth'], MAX_INDENT_PX)}px"
            ),
        )
        if reason is None and lore_id is not None:
            self.buttons[lore_id] = button
            button.on_click(lambda _: self.pick_operator(lore_id))
        facts = [f"{format_number(row['n_rows'])} rows"] if row["n_rows"] is not None else []
        facts += [reason[:REASON_CHARS]] if reason else []
        label = ipywidgets.HTML(f'<span style="opacity:.75">{escape_html(" · ".join(facts))}</span>')
        return ipywidgets.HBox([button, label], layout=ipywidgets.Layout(flex="0 0 auto", align_items="center"))

    def _show_status(self, text: str) -> None:
        self.sentence.value = f"<p>{escape_html(text)}</p>" if text else ""


def chart_outcome_ratios(outcome: ReplayOutcome) -> Any:
    """A/B chart of a replay; null without timed runs of two sides."""
    if not outcome.ratios.height:
        return None
    settings_a, settings_b = find_differing_settings(outcome)
    return chart_ratios(outcome.ratios, settings_a=settings_a, settings_b=settings_b)
