"""`workbench scaletest import-upstream`: the older scale-test tool's files as a run of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.scaletest.upstream.importing import Imported

_SHOWN = 20


def import_upstream(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Its output folder: submitted.json and sampled.json.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder below which the run gets its own.")] = None,
    workload_type: Annotated[
        str | None,
        typer.Option(
            "--workload-type",
            "-t",
            help="What was submitted: training, distributed or interactive. The files do not tell.",
        ),
    ] = None,
    num_gpus: Annotated[float, typer.Option("--num-gpus", "-g", help="GPUs of each pod, with --workload-type.")] = 1.0,
    num_workers: Annotated[int, typer.Option(help="Workers of each distributed workload.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Read submitted.json and sampled.json of Run:ai's scale-test tool into a run folder.

    Its chain of deltas becomes the table upstream_deltas: as that tool prints them, and as they are. Each row of the
    files that is left out is told. Times of the cluster are whole seconds there; nothing can make them finer.

    Exit code 0 when every submitted workload was sampled, 1 when some were not.

    Example: workbench scaletest import-upstream logs -t training
    """
    from workbench.scaletest.upstream.importing import Asked, import_folder

    asked = None if workload_type is None else Asked(workload_type, num_gpus, num_workers)
    found = import_folder(folder, out=out, asked=asked)
    _tell(found, as_json)
    raise typer.Exit(0 if found.run.verdict == "valid" else 1)


def _tell(found: Imported, as_json: bool) -> None:
    import json

    from workbench.terminal import say

    record = found.run.record
    if as_json:
        counts = {"submitted": found.submitted, "sampled": found.sampled, "kept": found.kept}
        odd = [{"file": one.file, "row": one.row, "left_out": one.left_out, "why": one.why} for one in found.odd]
        told = {"folder": str(found.run.folder), **counts, "verdict": found.run.verdict, "odd": odd}
        say(json.dumps({**told, "reasons": record["reasons"]}, indent=1))
        return
    say(f"{found.run.answer}\n  {found.run.verdict}: {record['reasons'][0]}")
    for one in found.odd[:_SHOWN]:
        say(f"  {one.file}, row {one.row} ({one.name or 'no name'}): {one.why}")
    if len(found.odd) > _SHOWN:
        say(f"  … and {len(found.odd) - _SHOWN} more: table upstream_odd")
    say(f"  run folder: {found.run.folder}")
