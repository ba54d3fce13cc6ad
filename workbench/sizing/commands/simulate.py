"""`workbench sizing simulate`: a service whose need for GPUs is known, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from workbench.sizing.simulation.service import Service


def simulate(
    gpus: Annotated[int, typer.Option(help="GPUs, each with a replica of its own.")] = 1,
    slots: Annotated[int, typer.Option(help="Sequences that fit into a GPU's KV cache at once.")] = 16,
    prefill_tokens_per_s: Annotated[float, typer.Option(help="Prompt tokens a GPU takes in per second.")] = 40_000,
    decode_base_s: Annotated[float, typer.Option(help="Fixed part of a decode step, in seconds.")] = 0.004,
    decode_per_sequence_s: Annotated[
        float, typer.Option(help="What each sequence adds to a decode step, in seconds.")
    ] = 0.0003,
    router: Annotated[str, typer.Option(help="Which GPU a call goes to: least, round_robin, random.")] = "least",
    admission: Annotated[
        int | None,
        typer.Option(
            help="Workflows that run at once; more wait, unseen in the events (nat serve: 8). All, if not given.",
        ),
    ] = None,
    calls: Annotated[int, typer.Option(help="Model calls of a workflow, one after the other.")] = 2,
    input_tokens: Annotated[float, typer.Option(help="Mean prompt length.")] = 400,
    input_cv: Annotated[float, typer.Option(help="Spread of prompt lengths over their mean.")] = 0.6,
    output_tokens: Annotated[float, typer.Option(help="Mean answer length.")] = 60,
    output_cv: Annotated[float, typer.Option(help="Spread of answer lengths over their mean.")] = 0.5,
    tool_s: Annotated[float, typer.Option(help="Mean time of a tool between two calls, in seconds.")] = 0.0,
    tool_cv: Annotated[float, typer.Option(help="Spread of tool times over their mean.")] = 0.3,
    shared_s: Annotated[
        float,
        typer.Option(help="Time on a resource that all share and GPUs do not scale, in seconds."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Start of the random numbers.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.", min=0, max=65_535)] = 8400,
    time_scale: Annotated[float, typer.Option(help="Factor on all times: 0.1 is ten times faster.")] = 1.0,
    ready_file: Annotated[Path | None, typer.Option(help="File that gets the URL once the server listens.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout when it ends.")] = False,
) -> None:
    """Serve a simulated cluster whose need for GPUs is known; Ctrl-C ends it and says what it served.

    It speaks what the NeMo Agent Toolkit serves (POST /generate/full) and what OpenAI does (/v1/chat/completions), so
    this tool, the toolkit's own calculator and other load tools can drive it. /stat tells what the server counted
    itself: in flight, peak, served, its own latencies, and how late it was.

    Example: workbench sizing simulate --gpus 2 --slots 8 --port 8400
    """
    fields = locals()
    for name in ("host", "port", "time_scale", "ready_file", "as_json"):
        fields.pop(name)
    _serve(_checked(fields, time_scale), host, port, time_scale, ready_file, as_json)


def _checked(fields: dict[str, Any], time_scale: float) -> Service:
    from pydantic import ValidationError

    from workbench.errors import ConfigError
    from workbench.sizing.simulation.service import Service

    if not 1e-4 <= time_scale <= 1e4:
        raise ConfigError("not a time scale", where="--time-scale", found=time_scale, allowed="0.0001 to 10000")
    try:
        return Service(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][0]).replace("_", "-")
        raise ConfigError(
            "not an option's value", where=where, found=first.get("input"), allowed=first["msg"]
        ) from error


def _serve(simulated: Service, host: str, port: int, time_scale: float, ready_file: Path | None, as_json: bool) -> None:
    import asyncio
    import json

    from workbench.errors import ConfigError
    from workbench.sizing.simulation import server

    def ready(url: str) -> None:
        from workbench import files

        if ready_file is not None:
            files.write_text(ready_file, url + "\n")
        typer.echo(f"simulated service of {simulated.gpus} GPU(s) at {url}; Ctrl-C ends it", err=as_json)

    server.allow_many_connections()
    try:
        served = asyncio.run(
            server.serve(simulated, host=host, port=port, time_scale=time_scale, ready=ready, stop=_with_signals)
        )
    except OSError as error:
        raise ConfigError(
            "cannot listen there",
            where=f"--host {host} --port {port}",
            found=error.strerror or error,
            do="choose another with --port, or 0 for any that is free",
        ) from error
    if as_json:
        typer.echo(json.dumps(served))
    else:
        typer.echo(_told(served))


def _with_signals(ended: asyncio.Event) -> None:
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    stop: Callable[[], None] = ended.set
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


def _told(served: dict[str, Any]) -> str:
    latency, late = served["latency_s"], served["late_s"]
    lines = [
        f"simulated: served {served['served']}, refused {served['refused']}, "
        f"abandoned by clients {served['abandoned']}, at most {served['peak']} in flight"
    ]
    if latency["n"]:
        lines.append(
            f"  latency p50 {latency['p50']:.3f} s, p95 {latency['p95']:.3f} s; answers left p99 "
            f"{late['p99'] * 1000:.1f} ms after the simulation had them ready"
        )
    return "\n".join(lines)
