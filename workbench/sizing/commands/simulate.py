"""`workbench sizing simulate`: serves a simulated GPU cluster over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.", min=0, max=65_535)]
TimeScale = Annotated[float, typer.Option(help="Factor on all times: 0.1 is ten times faster.")]
PromptWords = Annotated[
    bool, typer.Option("--prompt-words", help="A prompt has as many tokens as words, instead of a drawn length.")
]
ReadyFile = Annotated[Path | None, typer.Option(help="File that gets the URL once the server listens.")]


@take_options_from(
    "workbench.sizing.simulation.cluster_model:Service",
    groups={
        "Server": "gpus gpu_type model slots prefill_tokens_per_s decode_base_s decode_per_sequence_s router "
        "cache_tokens admission",
        "Requests": "calls input_tokens input_cv output_tokens output_cv tool_s tool_cv shared_s",
    },
    defaults="model",
)
def simulate(
    option_values: OptionValues,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    time_scale: TimeScale = 1.0,
    prompt_words: PromptWords = False,
    ready_file: ReadyFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve a simulated GPU cluster whose need for GPUs is known; Ctrl-C stops it and prints what it served.

    It speaks the protocol of the NeMo Agent Toolkit (POST /generate/full) and that of OpenAI (/v1/chat/completions), so
    this tool, the toolkit's calculator and other load tools can drive it. /stat reports the server's own counts: in
    flight, peak, served, latencies, and how late its answers were.

    With --gpu-type and --model its times are those predicted for that GPU type (one replica on each, vLLM).

    Example: workbench sizing simulate --gpus 2 --slots 8 --port 8400
    """
    import asyncio
    import signal

    from workbench.core import files
    from workbench.core.errors import ConfigError
    from workbench.sizing.simulation import simulator_server
    from workbench.sizing.simulation.cluster_model import Service

    if not 1e-4 <= time_scale <= 1e4:
        raise ConfigError("not a time scale", where="--time-scale", found=time_scale, allowed="0.0001 to 10000")
    service = option_values.build_model(Service)

    def announce_url(url: str) -> None:
        if ready_file is not None:
            files.write_text(ready_file, url + "\n")
        typer.echo(f"simulated service of {service.gpus} GPU(s) at {url}; Ctrl-C ends it", err=as_json)

    def stop_on_signals(ended: asyncio.Event) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)

    simulator_server.raise_file_limit_to_hard()
    try:
        served = asyncio.run(
            simulator_server.serve_simulator(
                service,
                host=host,
                port=port,
                time_scale=time_scale,
                prompt_words=prompt_words,
                ready=announce_url,
                stop=stop_on_signals,
            )
        )
    except OSError as error:
        raise ConfigError(
            "cannot listen there",
            where=f"--host {host} --port {port}",
            found=error.strerror or error,
            do="choose another with --port, or 0 for any that is free",
        ) from error
    finish_command(lambda: _format_served_counts(served), served, as_json=as_json)


def _format_served_counts(served: dict[str, Any]) -> str:
    """Summary of a simulated service that has ended, from its counts and its quantiles of times in seconds."""
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
