"""Questions about runs as tools of the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.core.errors import MissingToolError, WorkbenchError
from workbench.runs.questions import RunQuestions

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = (
    "Runs of a workbench that measures accelerated computing: speedups, GPUs needed, library stacks, scheduling rates. "
    "list_runs names them, show_run tells one with its tables, read_figure gives a figure with its interval. Give the "
    "interval and the run's verdict with every figure; an invalid run's figures are not known, its reasons say why."
)


def build_server(place: str | Path) -> MCPServer[Any]:
    """Build a server whose tools answer questions about the runs below a place; none of them writes."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingToolError(
            "the mcp package is not installed", do="pip install 'accelerated-workbench[mcp]'"
        ) from None
    questions = RunQuestions(place)
    server: MCPServer[Any] = MCPServer("workbench", instructions=INSTRUCTIONS, version=__version__)
    read_only = ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    for ask in (
        questions.list_runs,
        questions.show_run,
        questions.describe_table,
        questions.read_rows,
        questions.read_figure,
        questions.compare_runs,
        questions.show_history,
    ):
        server.add_tool(_tell_errors(ask), description=inspect.getdoc(ask), annotations=read_only)
    return server


def _tell_errors(ask: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The same question; its errors reach the client as words, with what is allowed and what to do."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(ask)
    def ask_and_tell(*arguments: Any, **named: Any) -> dict[str, Any]:
        try:
            return ask(*arguments, **named)
        except WorkbenchError as error:
            raise ToolError(str(error)) from error

    return ask_and_tell
