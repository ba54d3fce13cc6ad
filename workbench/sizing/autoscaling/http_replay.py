"""Replays a short piece of traffic over HTTP in real time: does the autoscaler do there what it does in virtual time?

The simulator changes its replicas by `POST /scale`; their start-up, the autoscaler and the requests are here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np

from workbench.core.errors import RunFailedError
from workbench.sizing.autoscaling.day_simulation import ACCOUNT_EVERY_S, DayResult, ScalingLimits
from workbench.sizing.autoscaling.day_traffic import HOUR_S, DayTraffic
from workbench.sizing.autoscaling.policies import Policy, Sample
from workbench.sizing.config import Goal
from workbench.sizing.load.client_messages import CHAT_PROTOCOLS, Reply, TargetSpec, clock
from workbench.sizing.load.service_targets.target_factory import create_target
from workbench.sizing.simulation import simulator_process
from workbench.sizing.simulation.cluster_model import Service


@dataclass
class _Course:
    """What the controller knows: replicas in service and on order, and its accounts since the last sample."""

    ready: int
    starting: int = 0
    gpu_s: float = 0.0
    n_arrived: int = 0
    n_looks: int = 0
    n_busy: float = 0.0
    in_flight: int = 0


def replay_over_http(
    service: Service,
    traffic: DayTraffic,
    policy: Policy,
    goal: Goal,
    limits: ScalingLimits,
    *,
    seed: int,
    start_replicas: int,
    time_scale: float,
) -> DayResult:
    """Replay traffic on the simulator over HTTP; all times are as much shorter as `time_scale` says, and told unscaled.

    `goal`: On the runtime. The requests come at the same moments as in `day_simulation.simulate_day`.
    """
    started = service.model_copy(update={"gpus": start_replicas})
    with simulator_process.run_simulator(started, time_scale=time_scale) as url:
        return asyncio.run(
            _replay(
                url, traffic.draw_arrivals(seed), traffic.duration_s, policy, goal, limits, start_replicas, time_scale
            )
        )


async def _replay(
    url: str,
    arrivals_s: Sequence[float],
    duration_s: float,
    policy: Policy,
    goal: Goal,
    limits: ScalingLimits,
    start_replicas: int,
    time_scale: float,
) -> DayResult:
    policy.restart()
    course, timeline = _Course(start_replicas), [(0.0, start_replicas, 0)]
    target = create_target(TargetSpec(protocol=CHAT_PROTOCOLS[0], url=url, model="simulated"))
    await target.open()
    begin = clock()
    replies: list[tuple[float, Reply]] = []

    def now_s() -> float:
        return (clock() - begin) / time_scale

    async def wait_until(at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - now_s()) * time_scale)

    async def send(at_s: float) -> None:
        await wait_until(at_s)
        course.n_arrived += 1
        replies.append((at_s, await target.send("word " * 8)))

    async def scale(session: aiohttp.ClientSession, change: int) -> None:
        if change > 0:
            course.starting += change
            await asyncio.sleep(limits.start_s * time_scale)
            course.starting -= change
        course.ready += change
        async with session.post(f"{url}/scale", data=json.dumps({"gpus": course.ready})) as response:
            if response.status != 200:
                raise RunFailedError("the simulator does not scale", found=f"HTTP {response.status}")
        timeline.append((now_s(), course.ready, course.starting))

    async def control(session: aiohttp.ClientSession) -> None:
        changes: set[asyncio.Task[None]] = set()
        look_s, sample_s = 0.0, 0.0
        while look_s < duration_s:
            await wait_until(look_s)
            async with session.get(f"{url}/stat") as response:
                loads = (await response.json())["loads"]
            course.in_flight = sum(loads)
            course.n_looks += 1
            course.n_busy += sum(load > 0 for load in loads) / len(loads)
            course.gpu_s += ACCOUNT_EVERY_S * (course.ready + course.starting)
            if look_s >= sample_s:
                span_s = policy.every_s if sample_s else 1.0
                sample = Sample(
                    look_s,
                    course.ready,
                    course.starting,
                    course.in_flight,
                    0,
                    course.n_busy / course.n_looks,
                    course.n_arrived / span_s,
                )
                course.n_looks, course.n_busy, course.n_arrived = 0, 0.0, 0
                sample_s += policy.every_s
                wanted = min(max(policy.decide(sample), limits.min_replicas), limits.max_replicas)
                # Of those on order none is cancelled here: they serve, and may go then.
                change = wanted - course.ready - course.starting
                change = max(change, limits.min_replicas - course.ready) if change < 0 else change
                if change:
                    changes.add(asyncio.create_task(scale(session, change)))
            look_s += ACCOUNT_EVERY_S
        for change_task in changes:
            change_task.cancel()
        await asyncio.gather(*changes, return_exceptions=True)

    try:
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(control(session), *(send(at_s) for at_s in arrivals_s))
    finally:
        await target.close()
    return _build_result(replies, goal, course, timeline, time_scale, begin)


def _build_result(
    replies: Sequence[tuple[float, Reply]],
    goal: Goal,
    course: _Course,
    timeline: list[tuple[float, int, int]],
    time_scale: float,
    begin: float,
) -> DayResult:
    ordered = sorted(replies, key=lambda pair: pair[0])
    late = [
        reply.outcome != "ok" or (reply.ended - begin) / time_scale - at_s > goal.limit_s for at_s, reply in ordered
    ]
    sent_s = np.array([at_s for at_s, _ in ordered])
    return DayResult(sent_s, np.array(late, dtype=np.float64), course.gpu_s / HOUR_S, timeline)
