"""The real NeMo Agent Toolkit, which this area is held against: installed apart, run as processes.

One environment in the user's cache, made by the first test that asks; every test under marker `peer` shares it. The
plug-in below is found by its metadata on PYTHONPATH, so that nothing is ever installed into the shared environment.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.fakes.cached_environment import install_environment

VERSION = "1.9.0"
# Its documented extra [profiler] lacks langchain-core and aiohttp; `nat serve` does not start without async_endpoints.
PACKAGES = (
    f"nvidia-nat[profiler]=={VERSION}",
    f"nvidia-nat-core[async_endpoints]=={VERSION}",
    "langchain-core",
    "aiohttp",  # for --endpoint
)
START_TIMEOUT_S = 180

PLUGIN = '''
"""A workflow with model calls that cost time and nothing else: `slots` of them at once, the rest in line."""

import asyncio
import uuid

from pydantic import Field

from nat.builder.builder import Builder
from nat.builder.context import Context
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData


class PlainConfig(FunctionBaseConfig, name="plain_calls"):
    slots: int = Field(4, description="Model calls at once.")
    calls: int = Field(2, description="Model calls of a run; none: a workflow without a model.")
    call_s: float = Field(0.055, description="Duration of a model call.")
    fail_above: int = Field(0, description="Runs in flight above which one fails; 0 for never.")
    fail_on: str = Field("", description="Part of a question that makes the run fail.")


@register_function(config_type=PlainConfig)
async def plain_calls(config: PlainConfig, builder: Builder):
    free = asyncio.Semaphore(config.slots)
    running = 0

    async def call(question: str) -> None:
        steps = Context.get().intermediate_step_manager
        identity = str(uuid.uuid4())
        told = StreamEventData(input=question)
        steps.push_intermediate_step(
            IntermediateStepPayload(UUID=identity, event_type=IntermediateStepType.LLM_START, name="plain", data=told)
        )
        async with free:
            await asyncio.sleep(config.call_s)
        told = StreamEventData(input=question, output="done")
        steps.push_intermediate_step(
            IntermediateStepPayload(UUID=identity, event_type=IntermediateStepType.LLM_END, name="plain", data=told)
        )

    async def answer(input_message: str) -> str:
        """Give back what was asked."""
        nonlocal running
        running += 1
        try:
            if config.fail_above and running > config.fail_above or config.fail_on and config.fail_on in input_message:
                raise RuntimeError("failed as it was told to")
            if not config.calls:
                await asyncio.sleep(config.call_s)
            for _ in range(config.calls):
                await call(input_message)
            return "answer to " + input_message
        finally:
            running -= 1

    yield FunctionInfo.from_fn(answer, description="Give back what was asked.")
'''


@cache
def _attempted() -> tuple[Path | None, str]:
    try:
        return installed(), ""
    except (RuntimeError, OSError) as error:
        return None, str(error)


def require() -> Path:
    """The toolkit's Python; skips the test, with the reason counted, where it cannot be had."""
    python, reason = _attempted()
    if python is None:
        pytest.skip(f"nvidia-nat {VERSION} cannot be installed: {reason}")
    return python


def installed() -> Path:
    """The Python of the environment in the user's cache, made when it is not there, whole or not at all.

    Raises
    ------
    RuntimeError
        It cannot be installed; the message says why.
    """
    return install_environment(f"peer/nvidia-nat-{VERSION}", PACKAGES)


def plugin(folder: Path) -> Path:
    """The plug-in as a folder for PYTHONPATH: `_type: plain_calls` is then a workflow of the toolkit."""
    place = folder / "plugin"
    info = place / "plain_calls_plugin-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (place / "plain_calls_plugin.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-calls-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[nat.components]\nplain_calls = plain_calls_plugin\n")
    return place


def workflow(folder: Path, *, questions: Path | None = None, **options: object) -> Path:
    """A config file of the toolkit with the plug-in's workflow; with `questions`, its eval section reads that JSON."""
    lines = ["workflow:", "  _type: plain_calls", *(f"  {name}: {value}" for name, value in options.items())]
    if questions is not None:
        lines += ["eval:", "  general:", f"    output_dir: {folder / 'eval'}", "    dataset:"]
        lines += ["      _type: json", f"      file_path: {questions}"]
    path = folder / "workflow.yml"
    path.write_text("\n".join(lines) + "\n")
    return path


def environment(plugins: Path | None = None) -> dict[str, str]:
    """Variables of a process of the toolkit: no colours, no telemetry, the plug-in on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    kept |= {"NO_COLOR": "1", "TQDM_DISABLE": "1", "MPLBACKEND": "Agg", "COLUMNS": "200", "NAT_TELEMETRY_ENABLED": "0"}
    return kept | ({"PYTHONPATH": str(plugins)} if plugins else {})


def nat(
    *arguments: str | Path, cwd: Path, plugins: Path | None = None, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run `nat ARGUMENTS` to its end; its exit code is for the test to judge."""
    command = [str(require().with_name("nat")), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=cwd, env=environment(plugins)
    )


@contextlib.contextmanager
def serving(config: Path, *, plugins: Path, extra: Mapping[str, str] | None = None) -> Iterator[str]:
    """`nat serve` on a free port of the loopback, given as its URL once it answers; ended with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(require().with_name("nat")), "serve", "--config_file", str(config)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    log = config.with_suffix(".serve.log")
    with log.open("w") as written:
        process = subprocess.Popen(
            command,
            stdout=written,
            stderr=subprocess.STDOUT,
            cwd=config.parent,
            env=environment(plugins) | dict(extra or {}),
            start_new_session=True,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(process)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return  # it answers, if with an error
        except OSError:
            assert process.poll() is None, f"nat serve ended:\n{log.read_text()[-2000:]}"
            assert time.monotonic() < give_up, f"nat serve does not answer:\n{log.read_text()[-2000:]}"
            time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    # A group of its own, because the server starts workers that outlive it otherwise.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 15)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(15)
