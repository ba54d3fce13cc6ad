"""`workbench lore bundle`: a dump as one zip file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command


def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder loreId-N.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.zip", help="The zip to write.", show_default="loreId-N.zip")
    ] = None,
    max_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Maximum size of its files, like 512m or 2g.")
    ] = "512m",
    trust: Annotated[
        bool, typer.Option("--trust", help="Bundle a dump that you did not sign; prints its contents first.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put a dump into one zip that `workbench lore replay FILE.zip` opens: plan, inputs, checksums, versions.

    The dump is checked first; the same dump gives the same bytes. A bundle holds the rows of the inputs: hide
    confidential columns with `lore dump --mask`.

    Exit code 2 when the dump is damaged, or larger than --max-bytes.

    Example: workbench lore bundle dumps/q/loreId-9 --out join.zip
    """
    from workbench.console.terminal import print_text
    from workbench.core import files
    from workbench.core.formats import format_bytes
    from workbench.lore.config import parse_size
    from workbench.lore.dumps.bundles import write_bundle

    written = write_bundle(
        folder,
        out,
        max_bytes=parse_size(max_bytes, where="--max-bytes"),
        trusted=trust,
        report=lambda text: print_text(text, err=True),
    )
    sidecar, digest = written.sidecar, files.hash_file(written.path)
    n_files, n_rows = len(sidecar.files), sum(entry.n_rows for entry in sidecar.inputs)
    finish_command(
        f"loreId {sidecar.lore_id}, {sidecar.operator}: {n_files} files, {format_bytes(written.n_bytes)}\n"
        f"{n_rows:,} rows of its inputs: {sidecar.masked or 'original values, nothing is masked'}\n"
        f"sha256 {digest}\n{written.path}",
        {
            "path": str(written.path),
            "sha256": digest,
            "lore_id": sidecar.lore_id,
            "operator": sidecar.operator,
            "n_files": n_files,
            "n_bytes": written.n_bytes,
            "n_rows": n_rows,
            "masked": sidecar.masked,
        },
        as_json=as_json,
    )
