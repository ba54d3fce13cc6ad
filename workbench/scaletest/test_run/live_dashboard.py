"""Live dashboard of a running test: its course from the run folder's files, and a notebook display."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.charts.theme import CATEGORIES, finish_chart
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import escape_html, format_seconds
from workbench.runs import run_folder
from workbench.scaletest.cluster_api.connection import NS_PER_S, now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import Acked, Begun, Failed, Seen, Stopped
from workbench.scaletest.tables import COURSE, SCHEDULE

if TYPE_CHECKING:
    import altair as alt

    from workbench.scaletest.config import NotebookConfig

MAX_POINTS = 600
RECENT_S = 10.0
UPDATE_EVERY_S = 1.0
HEIGHT_PX = 240
_LINES = {
    "accepted": "workloads accepted",
    "made": "pods made",
    "scheduled": "pods scheduled",
    "running": "pods started",
}


class Course:
    """Timeline of a running test from its files; `update` reads what is new.

    `stopped`: How submission ended; None while it runs.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._journal = run_records.follow_lines(self.folder / run_records.JOURNAL, run_records.JournalLine)
        self._observed = run_records.follow_lines(self.folder / run_records.OBSERVED, run_records.ObservedLine)
        self._origin_ns: int | None = None
        self._n_accepted = self._n_failed = 0
        self._made: dict[str, int] = {}
        self._bound: dict[str, int] = {}
        self._running: set[str] = set()
        self._rows: list[dict[str, float | int | None]] = []
        self.stopped: str | None = None
        self.planned = 0
        with contextlib.suppress(InputError):
            self.planned = SCHEDULE.read(self.folder / "tables").height

    @property
    def ended(self) -> bool:
        """The run is over, or its folder gone."""
        try:
            return run_folder.load_run(self.folder).status != "running"
        except InputError:
            return not self.folder.is_dir()

    @property
    def table(self) -> pl.DataFrame:
        """Table COURSE, at most 600 rows: of a long run every second, third, … look."""
        step = -(-len(self._rows) // MAX_POINTS) or 1
        return COURSE.frame(self._rows[::-1][::step][::-1])

    def update(self) -> pl.DataFrame:
        """Read what is new, add a row, and give the table."""
        for line in self._journal.read_new():
            match line:
                case Begun():
                    self._origin_ns = self._origin_ns or line.origin_ns
                    self.stopped = None
                case Stopped():
                    self.stopped = line.reason
                case Acked():
                    self._n_accepted += 1
                case Failed():
                    self._n_failed += 1
        for seen in self._observed.read_new():
            match seen:
                case Seen(resource="pod", transition="created"):
                    self._made.setdefault(seen.uid, seen.arrival_ns)
                case Seen(resource="pod", transition="scheduled"):
                    self._bound.setdefault(seen.uid, seen.arrival_ns)
                case Seen(resource="pod", transition="running"):
                    self._running.add(seen.uid)
        if self._origin_ns is not None:
            self._rows.append(self._build_row(now_ns(), self._origin_ns))
        return self.table

    def _build_row(self, at_ns: int, origin_ns: int) -> dict[str, float | int | None]:
        """Counts of workloads and pods up to a time, and the waits of pods scheduled in the last RECENT_S seconds."""
        at_s = (at_ns - origin_ns) / NS_PER_S
        begin = at_ns - int(RECENT_S * NS_PER_S)
        recent = [uid for uid, when in self._bound.items() if when >= begin]
        waits = sorted((self._bound[uid] - self._made[uid]) / NS_PER_S for uid in recent if uid in self._made)
        return {
            "at_s": at_s,
            "accepted": self._n_accepted,
            "refused": self._n_failed,
            "made": len(self._made),
            "scheduled": len(self._bound),
            "running": len(self._running),
            "scheduled_per_s": len(recent) / min(RECENT_S, at_s) if at_s > 1 else None,
            "p50_s": waits[len(waits) // 2] if waits else None,
            "p95_s": waits[min(len(waits) - 1, int(0.95 * len(waits)))] if waits else None,
        }


def chart_course(course: pl.DataFrame) -> alt.LayerChart:
    """How far is it? Counts by stage since the start.

    `course`: Table COURSE.
    """
    import altair as alt

    table = COURSE.check(course)
    wide = table.select("at_s", *(pl.col(name).alias(label) for name, label in _LINES.items()))
    frame = wide.unpivot(index="at_s", variable_name="stage", value_name="count")
    order = list(_LINES.values())
    colours = alt.Scale(domain=order, range=CATEGORIES[: len(order)])
    lines = (
        alt.Chart(frame)
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("at_s", type="quantitative", title="time since the start [s]"),
            y=alt.Y("count", type="quantitative", title="cumulative count"),
            color=alt.Color("stage", type="nominal", title=None, scale=colours, sort=order),
        )
    )
    return finish_chart(
        alt.layer(lines), "How far is it?", "read from the run folder while the test runs", frame, height=HEIGHT_PX
    )


class Dashboard:
    """Follows a running test: figures and a chart, redrawn every second until the run ends.

    Works on the run folder alone, so that it can be opened in another notebook, also after the test has ended.

    In a notebook: ``Dashboard("data/runs/scaletest/20261122T031500Z-1a2b3c").show()``
    """

    def __init__(self, folder: str | Path, *, every_s: float = UPDATE_EVERY_S) -> None:
        import ipywidgets

        self.course = Course(folder)
        self.figures = ipywidgets.HTML()
        self._every_s = every_s
        self._over = threading.Event()
        self._chart: Any = None

    def show(self) -> None:
        """Show figures and chart, and keep them up to date in the background."""
        from IPython.display import display

        self.update()
        display(self.figures)  # type: ignore[no-untyped-call]
        self._chart = display(chart_course(self.course.table), display_id=True)  # type: ignore[no-untyped-call]
        threading.Thread(target=self._follow_run, name="scale test dashboard", daemon=True).start()

    def stop(self) -> None:
        """Stop following; the test continues."""
        self._over.set()

    def update(self) -> None:
        """Read what is new and draw it."""
        table = self.course.update()
        self.figures.value = self.render_figures(table)
        if self._chart is not None:
            self._chart.update(chart_course(table))

    def render_figures(self, table: pl.DataFrame) -> str:
        """The figures as HTML."""
        if not table.height:
            return "<p>Nothing was sent yet.</p>"
        row = table.row(-1, named=True)
        rate = row["scheduled_per_s"]
        planned = f" of {self.course.planned:,}" if self.course.planned else ""
        parts = [
            f"<b>{row['accepted']:,}</b>{planned} accepted",
            f"<b>{row['scheduled']:,}</b> of {row['made']:,} pods scheduled",
            f"<b>{'–' if rate is None else f'{rate:.3g}'}</b> pods/s",
            f"wait p50 <b>{format_seconds(row['p50_s'])}</b>, p95 <b>{format_seconds(row['p95_s'])}</b> (last 10 s)",
            f"<b>{row['refused']:,}</b> refused",
        ]
        state = escape_html(self.course.stopped or "sending")
        return f"<p>{' · '.join(parts)} · {row['at_s']:.0f} s · {state}</p>"

    def _follow_run(self) -> None:
        while not self._over.wait(self._every_s):
            over = self.course.ended
            self.update()
            if over:
                return


def run_live_test(config: NotebookConfig, folder: Path) -> Path:
    """Run the notebook's scenario on a local cluster, which is brought up when it is not there, and followed live."""
    from workbench.scaletest.local_cluster.cluster_lifecycle import find_cluster, start_cluster
    from workbench.scaletest.local_cluster.cluster_record import ClusterSettings
    from workbench.scaletest.scenario.scenario_file import expand_scheduler_name
    from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
    from workbench.scaletest.test_run.run_options import find_cluster_access
    from workbench.scaletest.test_run.variant_turns import run_variants

    out = folder / "live"
    try:
        find_cluster(config.cluster)
    except ConfigError:
        start_cluster(config.cluster, ClusterSettings(scheduler="kai" if "kai" in config.schedulers else "default"))
    context = RunContext(find_cluster_access(cluster=config.cluster))
    schedulers = [name for short_name in config.schedulers if (name := expand_scheduler_name(short_name))]
    with show_dashboard_per_run(out):
        if len(config.schedulers) > 1:
            return run_variants(config.scenario, context, schedulers, repeat=config.repeat, out=out).folder
        return run_test(config.scenario, context, scheduler=next(iter(schedulers), None), out=out).folder


@contextlib.contextmanager
def show_dashboard_per_run(out: Path) -> Iterator[None]:
    """Within, a dashboard is shown for each run that begins below a folder."""
    over = threading.Event()

    def show_new_runs() -> None:
        shown: set[Path] = set()
        while not over.wait(UPDATE_EVERY_S):
            for journal in sorted(set(out.rglob(run_records.JOURNAL)) - shown):
                # One that was moved aside after its end is no new one.
                board = Dashboard(journal.parent)
                if not board.course.ended:
                    board.show()
                shown.add(journal)

    thread = threading.Thread(target=show_new_runs, name="scale test watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
