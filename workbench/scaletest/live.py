"""The notebook's live side: a test on a local cluster, and a dashboard that follows it from its files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.formats import escape, seconds
from workbench.pieces.encodings import finish
from workbench.scaletest.course import COURSE, Course
from workbench.theme import CATEGORIES

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from workbench.scaletest.localcluster.cluster import LocalCluster
    from workbench.scaletest.notebook_config import NotebookConfig

EVERY_S = 1.0
HEIGHT_PX = 240
_LINES = {
    "accepted": "workloads accepted",
    "made": "pods made",
    "scheduled": "pods scheduled",
    "running": "pods started",
}


def chart_course(course: pl.DataFrame) -> alt.LayerChart:
    """How far is it? Counts by stage since the start.

    Parameters
    ----------
    course
        Table COURSE.
    """
    import altair as alt
    import polars as pl

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
            y=alt.Y("count", type="quantitative", title="so many so far"),
            color=alt.Color("stage", type="nominal", title=None, scale=colours, sort=order),
        )
    )
    return finish(
        alt.layer(lines), "How far is it?", "read from the run folder while the test runs", frame, height=HEIGHT_PX
    )


class Dashboard:
    """Follows a running test: figures and a chart that are drawn anew every second until the run is over.

    Works on the run folder alone, so that it can be opened in another notebook, also after the test has ended.

    Examples
    --------
    In a notebook: ``Dashboard("data/runs/scaletest/20261122T031500Z-1a2b3c").show()``
    """

    def __init__(self, folder: str | Path, *, every_s: float = EVERY_S) -> None:
        import ipywidgets

        self.course = Course(folder)
        self.figures = ipywidgets.HTML()
        self._every_s = every_s
        self._over = threading.Event()
        self._chart: Any = None

    def show(self) -> None:
        """Show figures and chart, and keep them up to date in the background."""
        from IPython.display import display

        table = self.course.look()
        self.figures.value = self.text(table)
        display(self.figures)  # type: ignore[no-untyped-call]
        self._chart = display(chart_course(table), display_id=True)  # type: ignore[no-untyped-call]
        threading.Thread(target=self._follow, name="scale test dashboard", daemon=True).start()

    def stop(self) -> None:
        """Follow no longer; the test goes on."""
        self._over.set()

    def look(self) -> None:
        """Read what is new and draw it."""
        table = self.course.look()
        self.figures.value = self.text(table)
        if self._chart is not None:
            self._chart.update(chart_course(table))

    def text(self, table: pl.DataFrame) -> str:
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
            f"wait p50 <b>{seconds(row['p50_s'])}</b>, p95 <b>{seconds(row['p95_s'])}</b> (last 10 s)",
            f"<b>{row['refused']:,}</b> refused",
        ]
        state = escape(self.course.stopped or "sending")
        return f"<p>{' · '.join(parts)} · {row['at_s']:.0f} s · {state}</p>"

    def _follow(self) -> None:
        while not self._over.wait(self._every_s):
            over = self.course.ended
            self.look()
            if over:
                return


def measured(config: NotebookConfig, folder: Path) -> Path:
    """Run the notebook's scenario on a local cluster, which is brought up when it is not there, and followed live.

    Parameters
    ----------
    config
        The notebook's settings.
    folder
        The notebook's run folder; the test's own lies below it.

    Returns
    -------
    Path
        Folder of the run, or of the runs by side.

    Raises
    ------
    ConfigError, MissingToolError
        The scenario, or the cluster's programs, are not there.
    """
    from workbench.scaletest import running
    from workbench.scaletest.running.ab import interleaved
    from workbench.scaletest.scenario import scheduler_name

    out = folder / "live"
    _cluster(config.cluster, with_kai="kai" in config.schedulers)
    place = running.place(cluster=config.cluster)
    schedulers = [name for one in config.schedulers if (name := scheduler_name(one))]
    with followed(out):
        if len(config.schedulers) > 1:
            return interleaved(config.scenario, place, schedulers, repeat=config.repeat, out=out).folder
        return running.run(config.scenario, place, scheduler=next(iter(schedulers), None), out=out).folder


def _cluster(name: str, *, with_kai: bool) -> LocalCluster:
    from workbench.scaletest.localcluster.cluster import find, up

    try:
        return find(name)
    except ConfigError:
        return up(name, scheduler="kai" if with_kai else "default")


@contextlib.contextmanager
def followed(out: Path) -> Iterator[None]:
    """Within, a dashboard is shown for each run that begins below a folder."""
    over = threading.Event()
    thread = threading.Thread(target=_show_new, args=(out, over), name="scale test watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_new(out: Path, over: threading.Event) -> None:
    from workbench.scaletest import records

    shown: set[Path] = set()
    while not over.wait(EVERY_S):
        for journal in sorted(set(out.rglob(records.JOURNAL)) - shown):
            # One that was moved aside after its end is no new one.
            board = Dashboard(journal.parent)
            if not board.course.ended:
                board.show()
            shown.add(journal)
