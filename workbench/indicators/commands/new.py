"""`workbench indicators new`: the skeleton of an indicator of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it measures, such as FftSize or fft-size.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write into; made if it is not there.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write an indicator of your own: its declaration, its script, and a test; all three run as they are.

    An indicator is a class and a script. The class declares parameters, results (unit, which direction is better,
    which difference does not matter) and checks (was the answer right?). The script gets the parameters from
    environment variables, measures, and prints one JSON document; it runs with the Python of a stack, where the
    workbench is not installed. The skeleton sorts numbers: change the work, the names, then the test.

    Results go into typed tables of their own; no migration is needed. Change the class or the script later, and it
    is a new version, which is never compared with the old one. Existing files are never overwritten.

    Example: workbench indicators new FftSize --out indicators
    """
    import json
    import shlex

    from workbench.indicators.skeleton import write
    from workbench.terminal import say

    made = write(name, out)
    declaration, script, test = (shlex.quote(str(path)) for path in made.paths)
    named = shlex.quote(made.reference)
    steps = [
        f"python {script}",
        f"python -m pytest {test}",
        f"workbench indicators run --indicator {named} --stack numpy==2.2.6 --stack numpy==1.26.4",
    ]
    if as_json:
        document = {"name": made.name, "indicator": made.reference, "written": list(map(str, made.paths))}
        typer.echo(json.dumps({**document, "next": steps}, indent=1))
        return
    say(f"{made.name} is declared in {declaration}, measured by {script}, tested by {test}.")
    for about, step in zip(("its document", "its test", "measure it on two stacks"), steps, strict=True):
        say(f"  {about}:\n    {step}")
