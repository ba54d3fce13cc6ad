"""Commands that write: which format, and which operator's factor counts for them."""

from __future__ import annotations

import re
from typing import NamedTuple

from workbench.eventlog.plans import Node
from workbench.speedup.seed.expressions import UnreadableTextError
from workbench.speedup.seed.reads import hive_format

ENTRY = "DataWritingCommandExec"
# Name in the plan -> operator in the factor file; looked up in this order.
COMMANDS = {
    ENTRY: ENTRY,
    "InsertIntoHadoopFsRelationCommand": ENTRY,
    "InsertIntoHiveTable": ENTRY,
    "AppendDataExecV1": "AppendDataExecV1",
    "OverwriteByExpressionExecV1": "OverwriteByExpressionExecV1",
    "AtomicReplaceTableAsSelect": "AtomicReplaceTableAsSelectExec",
    "AtomicCreateTableAsSelect": "AtomicCreateTableAsSelectExec",
}
V1_EXECS = ("AppendDataExecV1", "OverwriteByExpressionExecV1")
WITHOUT_FORMAT = (*V1_EXECS, "AtomicReplaceTableAsSelect", "AtomicCreateTableAsSelect")
DELTA_ONLY = ("SaveIntoDataSourceCommand", "MergeIntoCommandEdge", "WriteIntoDeltaCommand")
DELTA_WORDS = ("DeltaTableV2", "WriteIntoDeltaBuilder")


class Write(NamedTuple):
    data_format: str
    entry: str
    delta: bool


def is_write(name: str) -> bool:
    """Is this operator a command that writes?"""
    return any(command in name for command in COMMANDS) or any(command in name for command in DELTA_ONLY)


def _is_delta(node: Node) -> bool:
    if any(command in node.name for command in DELTA_ONLY):
        return True
    if node.name in V1_EXECS:
        return all(word in node.text for word in DELTA_WORDS)
    return node.name in WITHOUT_FORMAT and re.fullmatch("(?i).*delta.*", node.text) is not None


def write_of(node: Node) -> Write:
    """Format of what a command writes; `unknown` where the text does not tell.

    Raises
    ------
    UnreadableTextError
        The text is not laid out as the original expects it: it then takes the operator as unsupported.
    """
    if _is_delta(node):
        return Write("Delta", COMMANDS.get(node.name, ENTRY), True)
    found = format_of(node)
    if found is None:
        raise UnreadableTextError(node.name)
    command = next(command for command in COMMANDS if command in node.name.strip())
    return Write(found, COMMANDS[command], False)


def format_of(node: Node) -> str | None:
    """Format as the summary of an application lists it; None for what is no write (or Delta's alone)."""
    command = next((command for command in COMMANDS if command in node.name.strip()), None)
    if command is None:
        return None
    if command in WITHOUT_FORMAT:
        return "unknown"
    if "InsertIntoHiveTable" in node.name:
        return hive_format(node.text)
    return _written_format(node.text)


def _written_format(text: str) -> str:
    """The third argument, or the fourth where the third lists partition columns.

    Examples
    --------
    >>> _written_format("Execute X gs://b, false, [a#25, b#26], ORC, Map(path -> gs://b)")
    'ORC'
    """
    rest = text.split(",", 2)[-1].strip()
    if not rest.startswith("["):
        return rest.split(",")[0]
    parts = [part.strip() for part in re.split(r"(?<=],)", rest)]
    if len(parts) < 2:
        raise UnreadableTextError(text)
    return parts[1].split(",")[0]
