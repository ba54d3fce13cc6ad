"""The old plotter's work: times.csv and a picture, of its files or of a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError, InputError
from workbench.files import replacing
from workbench.scaletest.upstream import plots, writing
from workbench.scaletest.upstream.exporting import view
from workbench.scaletest.upstream.plots import Plot


@dataclass(frozen=True)
class Reported:
    """What was written.

    Attributes
    ----------
    picture, times
        The two files.
    drawn, skipped, sampled
        Workloads: in the picture; left out as the old tool does; in all.
    """

    picture: Path
    times: Path
    drawn: int
    skipped: int
    sampled: int


def upstream_report(
    folder: str | Path,
    plot: Plot = "general",
    skip_errors: bool = True,
    head: int | None = None,
    tail: int | None = None,
    out: str | Path | None = None,
) -> Reported:
    """Write times.csv and general.png or detailed.png.

    Parameters
    ----------
    folder
        With submitted.json and sampled.json, or a run folder with its tables.
    skip_errors
        Leave out what the old tool leaves out: pod groups earlier than their pods, negative totals.
    head, tail
        Draw the first, or the last, so many by time of submission; times.csv has all.
    out
        Where they go; beside what was read without it.

    Raises
    ------
    InputError
        The files or tables are missing, or there is nothing to draw.
    ConfigError
        No such plot, a number that is none, or a folder that cannot be written.
    """
    plots.checked(plot)
    place = Path(folder)
    if not place.is_dir():
        raise InputError("no such folder", where=place)
    jobs = view(place).jobs
    chosen = plots.ordered(jobs, skip_errors=skip_errors, head=head, tail=tail)
    picture = plots.png(plots.chart(chosen, plot))
    target = place if out is None else Path(out)
    path = target / f"{plot}.png"
    try:
        times = writing.write_times(target, jobs, skip_errors=skip_errors)
        with replacing(path) as temporary:
            temporary.write_bytes(picture)
    except OSError as error:
        raise ConfigError("cannot be written", where=target, found=error.strerror, do="choose another --out") from None
    skipped = int((~jobs["kept"]).sum()) if skip_errors else 0
    return Reported(path, times, chosen.height, skipped, jobs.height)
