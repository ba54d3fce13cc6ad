"""`workbench demo`: three questions answered from the samples, and the gallery of their reports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workbench.cli import run_output
from workbench.console import terminal
from workbench.console.screen import is_terminal
from workbench.core.errors import ExitCode
from workbench.core.files import SHIPPED, default_out
from workbench.execution import runner

# Each takes seconds, and needs neither Spark nor a service, a cluster or an accelerator.
NOTEBOOKS = ("01_speedup", "03_sizing", "04_indicators")
NEXT_STEPS = """\
Your own question (put your files in place of the capitals):
  workbench run profile -p event_log=LOG          where a Spark job loses time
  workbench lore tag QUERY.sql --data TABLES      operators to replay alone
  workbench sizing run --url URL --goal "p95<=2"  the load your service carries
  workbench indicators time --command NEW -- OLD  the faster of two programs
  workbench scaletest plan --example              a first test of your cluster
  workbench capacity plan --sizing RUN            nodes and cost of that load
  workbench lab                                   all notebooks, live"""


def run_demo(out: Path | None, *, is_opened: bool) -> int:
    """Run the notebooks two at a time, print their answers and the gallery; returns the exit code."""
    from workbench.report.gallery import write_gallery

    place = out or default_out()
    paths = [SHIPPED / "notebooks" / f"{name}.ipynb" for name in NOTEBOOKS]
    try:
        with terminal.create_run_progress() as progress:
            results = runner.run_notebooks(paths, out=place, jobs=2, progress=progress)
    except runner.CancelledRuns as cancelled:
        run_output.print_results(cancelled.results, as_json=False)
        return ExitCode.CANCELLED
    for result in results:
        if result.exit_code:
            run_output.print_results([result], as_json=False)
            continue
        record = result.run.record
        conditions = ", ".join([record["verdict"], *record["conditions"]])
        terminal.print_text(f"{record['title']}\n  {result.run.answer}\n  {conditions}")
    page = Path(write_gallery(place)).absolute()
    terminal.print_text(f"\nreports: {page}")
    if is_opened and has_browser():
        import webbrowser

        if not webbrowser.open(page.as_uri()):
            sys.stderr.write(f"no browser to open {page} with\n")
    terminal.print_text(f"\n{NEXT_STEPS}", wrap=False)
    return max(result.exit_code for result in results)


def has_browser() -> bool:
    """Whether somebody is there to look at a page: a terminal, and a screen beside it."""
    has_screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return is_terminal(sys.stdout) and has_screen
