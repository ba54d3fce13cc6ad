"""`workbench lore dump`: the inputs of chosen operators of a query, written so that they can be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.lore.commands import options

if TYPE_CHECKING:
    from workbench.lore.dumping import Dumped


def dump(
    source: options.Source = None,
    ids: Annotated[
        str | None, typer.Option("--ids", help="Operators and partitions: 1[0 2 5-9], 4[*].", show_default=False)
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", help="New folder, or a URL that Hadoop knows.", show_default=False)
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="The query fails: find the operator that does, and dump its inputs.")
    ] = False,
    sql: options.Sql = None,
    view: options.Views = None,
    data: options.Data = None,
    conf: options.Confs = None,
    master: options.Master = "local[*]",
    driver_memory: options.Memory = "4g",
    tagged: Annotated[
        Path | None, typer.Option(help="Plan that `lore tag --out` kept; refuse when it has changed.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Stop above this size of one operator's dump: 512m, 2g.")
    ] = None,
    batch_rows: Annotated[int, typer.Option(help="Rows of one file at most.", min=1)] = 1_000_000,
    columns: Annotated[
        str | None, typer.Option(help="Keep only these columns, where the operator allows: a,b or 0:a,b;1:c by input.")
    ] = None,
    mask: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=hash|null", help="Hide a column's values; repeat.")
    ] = None,
    keep_output_rows: Annotated[
        int, typer.Option(help="Keep the output when it has at most so many rows, to show what differs.", min=0)
    ] = 100_000,
    mode: Annotated[str, typer.Option(help="post-hoc (after the run) or inline (during it).")] = "post-hoc",
    non_strict: Annotated[
        bool, typer.Option("--non-strict", help="Leave out what cannot be dumped, and list it.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Write the inputs of operators, their plan without its origin, and the fingerprint of what they give.

    Ids come from `workbench lore tag` of the same query and settings. The keys spark.rapids.sql.lore.* given by --conf
    hold, too; options win. Exit code 2 when something is refused, with --non-strict when nothing at all was dumped.

    Example: workbench lore dump query.sql --data tables/ --ids '9[0]' --path dumps/q
    """
    import json

    from workbench import lore
    from workbench.errors import ConfigError
    from workbench.lore import config, failing, session
    from workbench.lore.queries import failures_told, query
    from workbench.terminal import say

    asked = query(source, sql, view or [], data)
    confs = options.pairs(conf, where="--conf")
    settings = config.from_session(
        lambda key, default: confs.get(key, default),
        ids=ids,
        path=path,
        max_bytes=max_bytes,
        batch_rows=batch_rows,
        columns=_columns(columns),
        mask=options.pairs(mask, where="--mask", allowed="COLUMN=hash or COLUMN=null") or None,
        keep_output_rows=keep_output_rows,
        mode=mode,
        strict=False if non_strict else None,
    )
    if failed:
        failing.require_unchosen(ids=ids, tagged=tagged, mode=settings.mode)
    elif not settings.ids:
        raise ConfigError("no operator is chosen", where="--ids", allowed="1[0 2 5-9], 4[*]", do="workbench lore tag")
    expected = _tagged(tagged) if tagged is not None else None
    started = {"spark.driver.memory": driver_memory, **confs}
    if settings.mode == "inline":
        from workbench.lore import inline

        started = inline.enable(started, say=lambda line: say(line, err=True))
    with session.fresh(master=master, settings=started, filtered=False) as spark, failures_told():
        found = lore.dump_with(asked.frame(spark), settings, tagged=expected, failed=failed)
    if as_json:
        typer.echo(json.dumps({"folders": found.folders, "refused": found.refused, "warnings": found.warnings}))
    else:
        _told(found)
    if not found.folders:
        raise typer.Exit(2)


def _told(found: Dumped) -> None:
    """What was dumped where, what not, and how to go on."""
    import shlex

    from workbench.terminal import say

    for lore_id, folder in found.folders.items():
        say(f"loreId {lore_id}: {folder}")
    for warning in found.warnings:
        say(f"note: {warning}")
    for lore_id, reason in found.refused.items():
        say(f"left out, loreId {lore_id}: {reason}", err=True)
    if found.folders:
        first = next(iter(found.folders.values())).removeprefix("file:")
        say(f"\nreplay it: workbench lore replay {shlex.quote(first)}")


def _tagged(path: Path) -> dict[str, Any]:
    """What `lore tag --out` kept.

    Raises
    ------
    InputError
        It is no such file.
    """
    import json

    from workbench.errors import InputError

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("cannot be read", where=f"--tagged {path}", found=str(error)[:200]) from error
    if not isinstance(document, dict) or not isinstance(document.get("shape"), str):
        raise InputError("not a tagged plan", where=f"--tagged {path}", do="workbench lore tag QUERY --out FILE")
    return document


def _columns(text: str | None) -> dict[int, list[str]] | list[str] | None:
    """`a,b` for all inputs, `0:a,b;1:c` by input."""
    from workbench.errors import ConfigError

    if text is None:
        return None
    if ":" not in text:
        return [name.strip() for name in text.split(",") if name.strip()]
    found: dict[int, list[str]] = {}
    for part in text.split(";"):
        number, _, names = part.partition(":")
        if not number.strip().isdigit():
            raise ConfigError(
                "not columns of an input", where="--columns", found=part[:100], allowed="a,b or 0:a,b;1:c"
            )
        found[int(number)] = [name.strip() for name in names.split(",") if name.strip()]
    return found
