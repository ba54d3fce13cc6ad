"""`workbench lore dump`: write the inputs of chosen operators of a query, so that they can be replayed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, print_json
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.lore.commands import lore_options


def _parse_masks(texts: list[str], flag: str) -> dict[str, str]:
    from workbench.lore.config import parse_settings

    return parse_settings(texts, where=flag, allowed="COLUMN=hash or COLUMN=null")


def _parse_columns(text: str, flag: str) -> dict[int, list[str]] | list[str]:
    """Parse columns: `a,b` for all inputs gives a list, `0:a,b;1:c` a list for each input number."""
    from workbench.core.errors import ConfigError

    columns: dict[int, list[str]] = {}
    for part in text.split(";") if ":" in text else [f"0:{text}"]:
        number, _, names = part.partition(":")
        if not number.strip().isdigit():
            raise ConfigError("not columns of an input", where=flag, found=part[:100], allowed="a,b or 0:a,b;1:c")
        columns[int(number)] = [name.strip() for name in names.split(",") if name.strip()]
    return columns if ":" in text else columns[0]


@take_options_from(
    "workbench.lore.config:DumpSettings",
    options={
        "ids": FieldOption(
            kind=str, default=None, show_default=False, help="Operators and partitions: 1[0 2 5-9], 4[*]."
        ),
        "path": FieldOption(default=None, show_default=False, help="New folder, or a URL that Hadoop knows."),
        "max_bytes": FieldOption(kind=str, help="Stop above this size of one operator's dump: 512m, 2g."),
        "batch_rows": FieldOption(min=1),
        "columns": FieldOption(
            kind=str,
            default=None,
            parse=_parse_columns,
            help="Keep only these columns, where the operator allows: a,b or 0:a,b;1:c by input.",
        ),
        "mask": FieldOption(
            kind=list[str], metavar="COLUMN=hash|null", parse=_parse_masks, help="Hide a column's values; repeat."
        ),
        "keep_output_rows": FieldOption(min=0),
    },
    groups={"Query": "failed sql view data conf master driver_memory tagged"},
    omit="strict tag_enabled skip_plan_dump original_names",
    defaults="model",
)
def dump(
    option_values: OptionValues,
    source: lore_options.Source = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="The query fails: find the operator that does, and dump its inputs.")
    ] = False,
    sql: lore_options.Sql = None,
    view: lore_options.Views = None,
    data: lore_options.Data = None,
    conf: lore_options.Confs = None,
    master: lore_options.Master = "local[*]",
    driver_memory: lore_options.Memory = "4g",
    tagged: Annotated[
        Path | None, typer.Option(help="Plan kept by `lore tag --out`; the dump is refused when it has changed.")
    ] = None,
    non_strict: Annotated[bool, typer.Option("--non-strict", help="Skip what cannot be dumped, and list it.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write the inputs of operators, their plan without its origin, and the fingerprint of their output.

    Ids come from `workbench lore tag` of the same query and settings. Keys spark.rapids.sql.lore.* in --conf count,
    too; options override them. Exit code 2 when something is refused, with --non-strict when nothing was dumped.

    Example: workbench lore dump sample:lore/query --data sample:lore/tables --ids '9[0]' --path dumps/q
    """
    from workbench import lore
    from workbench.console.terminal import print_text
    from workbench.core.data_files import read_json_file
    from workbench.core.errors import ConfigError, InputError
    from workbench.lore import config
    from workbench.lore.dumps.query_dumps import check_nothing_chosen
    from workbench.lore.spark_bridge import replay_session
    from workbench.lore.spark_bridge.query_sources import load_query, report_spark_errors
    from workbench.lore.spark_bridge.replay_session import refuse_misspelt_keys
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    query = load_query(source, sql, view or [], data)
    confs = lore_options.parse_setting_flags(conf, "--conf")
    if non_strict:
        option_values["strict"] = False
    settings = config.settings_from_session(lambda key, default: confs.get(key, default), **option_values)
    if failed:
        check_nothing_chosen(ids=option_values.get("ids"), tagged=tagged, mode=settings.mode)
    elif not settings.ids:
        raise ConfigError("no operator is chosen", where="--ids", allowed="1[0 2 5-9], 4[*]", do="workbench lore tag")
    expected = None
    if tagged is not None:
        expected = read_json_file(tagged, noun="tagged plan", do="workbench lore tag QUERY --out FILE")
        if not isinstance(expected, dict) or not isinstance(expected.get("shape"), str):
            raise InputError("not a tagged plan", where=f"--tagged {tagged}", do="workbench lore tag QUERY --out FILE")
    started = {"spark.driver.memory": driver_memory, **confs}
    if settings.mode == "inline":
        from workbench.lore.jvm.inline_capture import enable_inline

        started = enable_inline(started, say=lambda line: print_text(line, err=True))
    with replay_session.fresh_session(master=master, settings=started, filtered=False) as spark, report_spark_errors():
        refuse_misspelt_keys(connect_bridge(spark), confs)
        result = lore.dump_with_settings(query.to_frame(spark), settings, tagged=expected, failed=failed)
    if as_json:
        print_json(vars(result))
    else:
        for lore_id, folder in result.folders.items():
            print_text(f"loreId {lore_id}, {result.operators[lore_id]}: {folder}")
        for warning in result.warnings:
            print_text(f"note: {warning}")
        for lore_id, reason in result.refused.items():
            print_text(f"left out, loreId {lore_id}: {reason}", err=True)
        if result.folders:
            first = next(iter(result.folders.values())).removeprefix("file:")
            print_text(f"\nverify it: workbench lore verify {shlex.quote(first)}")
    if not result.folders:
        raise typer.Exit(2)
