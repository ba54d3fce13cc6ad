"""`workbench speedup export`: a factor model for the original tools, or as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.terminal import print_text


def export(
    factors: Annotated[Path, typer.Argument(help="Factor model that `generate` wrote.")],
    output: Annotated[
        Path, typer.Option(help="*.csv: CPUOperator,Score for the original tools; *.parquet: all terms.")
    ],
) -> None:
    """Write factors as CSV for the original tools, or all terms as Parquet.

    A scan factor of exactly 1 is written as 1.01, because those tools read 1 as "not supported".

    Example: workbench speedup export factors.json --output factors.csv
    """
    from workbench.core.errors import ConfigError
    from workbench.speedup.calibration.factor_model import export_factor_csv, export_parquet, load_factor_model

    writers = {".csv": export_factor_csv, ".parquet": export_parquet}
    if output.suffix.lower() not in writers:
        raise ConfigError("unknown kind of output", where="--output", found=output.name, allowed=["*.csv", "*.parquet"])
    for note in writers[output.suffix.lower()](load_factor_model(factors), output):
        print_text(f"note: {note}", err=True)
    print_text(f"written: {output}")
