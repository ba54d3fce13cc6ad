"""`workbench speedup export`: a factor model for the original tools, or as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.terminal import say


def export(
    factors: Annotated[Path, typer.Argument(help="Factor model that `generate` wrote.")],
    output: Annotated[
        Path, typer.Option(help="*.csv: CPUOperator,Score for the original tools; *.parquet: all terms.")
    ],
) -> None:
    """Write factors for the original tools, or with all that is known of them as Parquet.

    A scan's factor of exactly 1 is written as 1.01, because those tools take 1 for "not supported".

    Example: workbench speedup export factors.json --output factors.csv
    """
    from workbench.errors import ConfigError
    from workbench.speedup import model
    from workbench.speedup.export import export_parquet, export_upstream

    kinds = {".csv": export_upstream, ".parquet": export_parquet}
    if output.suffix.lower() not in kinds:
        raise ConfigError("unknown kind of output", where="--output", found=output.name, allowed=["*.csv", "*.parquet"])
    for note in kinds[output.suffix.lower()](model.read(factors), output):
        say(f"note: {note}", err=True)
    say(f"written: {output}")
