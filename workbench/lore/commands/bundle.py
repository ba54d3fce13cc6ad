"""`workbench lore bundle`: a dump as one zip for a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder loreId-N.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.zip", help="The zip to write.", show_default="loreId-N.zip")
    ] = None,
    max_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Most bytes of its files, like 512m or 2g.")] = "512m",
    trust: Annotated[
        bool, typer.Option("--trust", help="Bundle a dump that you did not sign; says first what is in it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Put a dump into one zip that `workbench lore replay FILE.zip` opens: plan, inputs, checksums, versions.

    The dump is checked first; the same dump gives the same bytes. A bundle holds the rows of the inputs: hide what
    must not leave with --mask when the operator is dumped.

    Exit code 2 when the dump does not hold, or is larger than --max-bytes.

    Example: workbench lore bundle dumps/q/loreId-9 --out join.zip
    """
    from workbench import files
    from workbench.formats import size
    from workbench.lore.bundle import write_bundle
    from workbench.lore.config import size_bytes
    from workbench.terminal import say

    most = size_bytes(max_bytes, where="--max-bytes")
    made = write_bundle(folder, out, max_bytes=most, trusted=trust, report=lambda text: say(text, err=True))
    digest = files.sha256(made.path)
    n_rows = sum(entry.n_rows for entry in made.sidecar.inputs)
    if as_json:
        import json

        document = {
            "path": str(made.path),
            "sha256": digest,
            "lore_id": made.sidecar.lore_id,
            "operator": made.sidecar.operator,
            "n_files": len(made.sidecar.files),
            "n_bytes": made.n_bytes,
            "n_rows": n_rows,
            "masked": made.sidecar.masked,
        }
        typer.echo(json.dumps(document, indent=2))
        return
    hidden = made.sidecar.masked or "as they were, nothing is masked"
    say(
        f"loreId {made.sidecar.lore_id}, {made.sidecar.operator}: {len(made.sidecar.files)} files, {size(made.n_bytes)}"
    )
    say(f"{n_rows:,} rows of its inputs: {hidden}")
    say(f"sha256 {digest}\n{made.path}")
