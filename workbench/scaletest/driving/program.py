"""A program as a way of making objects: started without a shell, bounded in time and output, ended with us."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench import redaction
from workbench.errors import ConfigError
from workbench.scaletest.driving.reply import shown
from workbench.scaletest.times import now_ns

MOST_OUTPUT_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """A program's end. `code` is null when its time was up."""

    code: int | None
    output: bytes
    told: str
    sent_ns: int
    done_ns: int


async def run(words: Sequence[str], *, stdin: bytes | None, timeout_s: float) -> Ended:
    """Run a program, and keep what it says up to a mebibyte.

    Raises
    ------
    ConfigError
        It cannot be started.
    """
    sent_ns = now_ns()
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for us: what is under way may end.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    except OSError as error:
        raise ConfigError("cannot start the program", where=words[0], found=error.strerror) from None
    try:
        async with asyncio.timeout(timeout_s):
            output, told, _ = await asyncio.gather(_all(process.stdout), _all(process.stderr), _give(process, stdin))
            code = await process.wait()
    except TimeoutError:
        return Ended(None, b"", f"no end within {timeout_s:g} s", sent_ns, now_ns())
    finally:
        # Also what it started; after a good end there is nobody left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return Ended(code, output, shown(redaction.clean(told.decode(errors="replace"))), sent_ns, now_ns())


async def _all(stream: asyncio.StreamReader | None) -> bytes:
    """All it says, the first part kept: a pipe that nobody empties would stop it."""
    assert stream is not None
    kept = b""
    while block := await stream.read(1 << 16):
        kept += block[: MOST_OUTPUT_BYTES - len(kept)]
    return kept


async def _give(process: asyncio.subprocess.Process, text: bytes | None) -> None:
    if process.stdin is None or text is None:
        return
    with contextlib.suppress(ConnectionError):
        process.stdin.write(text)
        await process.stdin.drain()
    process.stdin.close()


def _ending_with_parent() -> Callable[[], None] | None:
    """What the child does first: ask the kernel to be killed when we are, even by SIGKILL. Linux only."""
    if sys.platform != "linux":
        return None
    # Loaded here: between fork and exec nothing may be imported.
    prctl = ctypes.CDLL(None).prctl
    death, number = ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal.SIGKILL)

    def ask() -> None:
        prctl(death, number)

    return ask


_die_with_parent = _ending_with_parent()
