"""Client processes on Dask workers: the same engine, shares of one level, clocks compared, lost workers told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from types import TracebackType
from typing import Any, Self

import msgspec

from workbench import __version__
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.sizing.load import client_messages
from workbench.sizing.load.client_messages import clock
from workbench.sizing.load.client_pool import LostClientError, split_command
from workbench.sizing.load.client_worker import ClientWorker

CONNECT_LIMIT_S = 30.0
CALL_LIMIT_S = 15.0
"""A worker that does not answer for so long is lost."""
POLL_EVERY_S = 0.1
N_CLOCK_SAMPLES = 9
OPEN_LIMIT_S = 120.0


class RemoteClient:
    """One client on a Dask worker (an actor): runs the engine in an event loop of its own."""

    def __init__(self) -> None:
        self._reports: deque[bytes] = deque()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="workbench load")
        self._thread.start()
        self._worker: ClientWorker = asyncio.run_coroutine_threadsafe(self._create_worker(), self._loop).result()

    def read_clock(self) -> float:
        """Now, on this worker's clock."""
        return clock()

    def read_version(self) -> str:
        """Version of the workbench that the worker has."""
        return __version__

    def handle_command(self, body: bytes) -> None:
        """Do what is ordered."""
        command = client_messages.decode_command(body)
        asyncio.run_coroutine_threadsafe(self._worker.handle_command(command), self._loop).result(CALL_LIMIT_S)

    def take_reports(self) -> list[bytes]:
        """Reports since the last call."""
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def close(self) -> None:
        """Break off what runs and end the loop."""
        asyncio.run_coroutine_threadsafe(self._worker.close(), self._loop).result(CALL_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_LIMIT_S)

    async def _create_worker(self) -> ClientWorker:
        from workbench.sizing.load.client_worker import ClientWorker

        return ClientWorker(lambda report: self._reports.append(msgspec.msgpack.encode(report)))


class DaskPool:
    """Clients on all workers of a Dask cluster; opened with `async with`, and used as `ClientPool` is.

    `workers`: `local:N` for a cluster of this machine with N workers that ends with the pool, or `dask://HOST:PORT`.
    """

    start_lead_s = 0.5

    def __init__(self, opening: client_messages.Open, workers: str) -> None:
        self._opening = opening
        self._where = workers
        self._actors: dict[int, Any] = {}
        self._addresses: dict[int, str] = {}
        self._offsets: dict[int, float] = {}
        self._pollers: dict[int, asyncio.Task[None]] = {}
        self._reports: asyncio.Queue[tuple[int, client_messages.Report | LostClientError]] = asyncio.Queue()
        self._stack = contextlib.AsyncExitStack()
        self._client: Any = None
        self._next_number = 0
        self.clock_error_s: float | None = None

    @property
    def size(self) -> int:
        """Number of workers that share the load now."""
        return len(self._actors)

    async def __aenter__(self) -> Self:
        try:
            self._client = await self._stack.enter_async_context(self._connect())
            await self.prepare_step()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def prepare_step(self) -> None:
        """Take in workers that have joined since the last step, and compare all clocks with this one's."""
        addresses = set(self._addresses.values())
        present = await self._list_workers()
        for number in [client for client, address in self._addresses.items() if address not in present]:
            self._forget_client(number)
        await asyncio.gather(*(self._open_client(address) for address in sorted(present - addresses)))
        if not self._actors:
            raise RunFailedError("no Dask worker is left", where=self._where)
        errors = await asyncio.gather(*(self._compare_clock(number) for number in list(self._actors)))
        self.clock_error_s = max(errors, default=None)

    async def send_to_all(self, command: client_messages.Command) -> None:
        """Give all the same command; a load is shared among them, and its begin is told on each one's own clock."""
        numbers = sorted(self._actors)
        shares = [split_command(command, place, len(numbers)) for place in range(len(numbers))]
        orders = [self._encode_for(number, share) for number, share in zip(numbers, shares, strict=True)]
        calls = zip(numbers, orders, strict=True)
        await asyncio.gather(*(self._call(number, "handle_command", order) for number, order in calls))

    async def next_report(self, limit_s: float | None = None) -> tuple[int, client_messages.Report]:
        """The next report and whose it is."""
        number, report = await asyncio.wait_for(self._reports.get(), limit_s)
        if isinstance(report, LostClientError):
            raise report
        if isinstance(report, client_messages.Broken):
            if report.facts:
                raise ConfigError(report.what, **report.facts)
            raise RunFailedError(report.what, where=f"Dask worker {number}")
        return number, report

    @contextlib.asynccontextmanager
    async def _connect(self) -> Any:
        try:
            from distributed import Client, LocalCluster
        except ModuleNotFoundError:
            raise MissingToolError(
                "distributed is not installed", where="--workers", do="pip install 'accelerated-workbench[dask]'"
            ) from None
        kind, _, count = self._where.partition(":")
        if kind == "local":
            settings = {
                "threads_per_worker": 1,
                "dashboard_address": "127.0.0.1:0",
                "memory_limit": 0,
                "silence_logs": 50,
            }
            async with (
                LocalCluster(n_workers=int(count), host="127.0.0.1", asynchronous=True, **settings) as cluster,
                Client(cluster, asynchronous=True, set_as_default=False) as client,
            ):
                yield client
            return
        address = f"tcp://{self._where.partition('//')[2]}"
        try:
            client = await Client(address, asynchronous=True, set_as_default=False, timeout=CONNECT_LIMIT_S)
        except (OSError, TimeoutError, ValueError) as error:
            raise ConfigError(
                "no Dask scheduler here",
                where="--workers",
                found=f"{address}: {type(error).__name__}",
                do="dask scheduler",
            ) from None
        try:
            yield client
        finally:
            await client.close()

    async def _list_workers(self) -> set[str]:
        info = await self._client.scheduler.identity()
        addresses = {str(address) for address in info["workers"]}
        if not addresses and not self._next_number:
            raise ConfigError("the Dask cluster has no workers", where="--workers", found=self._where, do="dask worker")
        return addresses

    async def _open_client(self, address: str) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        key = f"workbench-load-{number}-{id(self)}"
        future = self._client.submit(RemoteClient, workers=[address], actor=True, pure=False, key=key)
        try:
            # An actor finds its client by the context that it is received in.
            with self._client.as_current():
                actor = await asyncio.wait_for(future, OPEN_LIMIT_S)
            version = await asyncio.wait_for(actor.read_version(), CALL_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - what a worker raises arrives as it is, whatever it is
            raise ConfigError(
                "a Dask worker cannot run the client",
                where=address,
                found=f"{type(error).__name__}: {str(error)[:120]}",
                do="install the workbench where the worker runs",
            ) from None
        if version != __version__:
            raise ConfigError("a Dask worker has another workbench", where=address, found=version, allowed=__version__)
        self._actors[number], self._addresses[number] = actor, address
        await self._call(number, "handle_command", msgspec.msgpack.encode(self._opening))
        await self._wait_until_open(number)
        self._pollers[number] = asyncio.get_running_loop().create_task(self._poll_reports(number))

    async def _wait_until_open(self, number: int) -> None:
        until = clock() + OPEN_LIMIT_S
        while clock() < until:
            for body in await self._call(number, "take_reports") or []:
                report = client_messages.decode_report(body)
                if isinstance(report, client_messages.Broken):
                    raise ConfigError(report.what, **report.facts)
                return
            await asyncio.sleep(POLL_EVERY_S)
        raise RunFailedError("a Dask worker does not open the target", where=self._addresses.get(number))

    async def _compare_clock(self, number: int) -> float:
        """Offset of a worker's clock by the quickest of some round trips; returns how wrong it may be."""
        best = float("inf")
        for _ in range(N_CLOCK_SAMPLES):
            sent = clock()
            there = await self._call(number, "read_clock")
            took = clock() - sent
            if there is not None and took < best:
                best, self._offsets[number] = took, there - (sent + took / 2)
        return best / 2

    def _encode_for(self, number: int, command: client_messages.Command) -> bytes:
        if isinstance(command, client_messages.Begin):
            command = msgspec.structs.replace(command, base=command.base + self._offsets.get(number, 0.0))
        return msgspec.msgpack.encode(command)

    async def _poll_reports(self, number: int) -> None:
        while number in self._actors:
            for body in await self._call(number, "take_reports") or []:
                self._reports.put_nowait((number, client_messages.decode_report(body)))
            await asyncio.sleep(POLL_EVERY_S)

    async def _call(self, number: int, method: str, *arguments: Any) -> Any:
        """The method's result; None where the worker is lost, which is reported once."""
        actor = self._actors.get(number)
        if actor is None:
            return None
        try:
            return await asyncio.wait_for(getattr(actor, method)(*arguments), CALL_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - a lost worker raises many things
            if number in self._actors:
                address = self._addresses[number]
                self._forget_client(number)
                message = f"{address} ({type(error).__name__})"
                self._reports.put_nowait((number, LostClientError(number, message)))
            return None

    def _forget_client(self, number: int) -> None:
        self._actors.pop(number, None)
        self._addresses.pop(number, None)
        self._offsets.pop(number, None)
        if (poller := self._pollers.pop(number, None)) is not None and poller is not asyncio.current_task():
            poller.cancel()

    async def _close(self) -> None:
        pollers = list(self._pollers.values())
        for poller in pollers:
            poller.cancel()
        await asyncio.gather(*pollers, return_exceptions=True)
        await asyncio.gather(*(self._call(number, "close") for number in list(self._actors)))
        self._actors.clear()
        await self._stack.aclose()
