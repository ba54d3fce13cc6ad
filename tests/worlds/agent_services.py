"""How many GPUs agents need, held against brute force (SIMULATED, virtual time): tasks and services are drawn.

python -m tests.worlds.agent_services 20 --first 0
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.worlds.agent_traces import World
from workbench.core.errors import WorkbenchError
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.method_comparison import find_required_gpus
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.load.agent_traces import read_agent_tasks
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.virtual_time import simulate_sweep, simulate_verification


@dataclass
class Judged:
    """The GPUs that were recommended from one test GPU, and those that are needed."""

    seed: int
    recommended: int | None
    verified: bool
    needed: int | None
    refused: str = ""


def judge_world(seed: int) -> Judged:
    """Size for a drawn number of users, a goal and a service; then try counts."""
    draw = random.Random(f"agent services/{seed}")
    world = World(seed)
    world.traits -= {"missing tokens", "bare branches"}
    with tempfile.TemporaryDirectory() as folder:
        path = world.record(Path(folder))
        agents = read_agent_tasks(path)
        service = Service(
            slots=draw.choice([4, 8, 16, 32]),
            prefill_tokens_per_s=draw.uniform(5_000, 40_000),
            decode_base_s=draw.uniform(0.004, 0.02),
            decode_per_sequence_s=draw.uniform(0.0002, 0.001),
            router=draw.choice(["least", "session", "random", "round_robin"]),
            cache_tokens=draw.choice([0, 0, 200_000]),
            seed=seed,
        )
        idle_s = sorted(
            task.time_task([
                call.input_tokens / service.prefill_tokens_per_s
                + call.output_tokens * (service.decode_base_s + service.decode_per_sequence_s)
                for call in task.calls
            ])
            for task in agents.tasks
        )  # fmt: skip
        goal = Goal(limit_s=round(idle_s[-1] * draw.uniform(1.3, 2.5), 2))
        users = draw.randint(10, 60)
        counts = [1] if not service.cache_tokens or service.router == "session" else [1, 2, 4]
        settings = {"agent_tasks": path, "goals": [goal], "seed": seed, "simulated": True, "protocol": "openai"}
        config = build_sweep_config(**settings, model="m", url="http://simulated")
        tables = [
            simulate_sweep(service.model_copy(update={"gpus": gpus}), config.model_copy(update={"gpus": gpus}))
            for gpus in counts
        ]
        import polars as pl

        from workbench.sizing.estimation.sizing_answer import concat_sweeps

        requests, steps = concat_sweeps(tables)
        try:
            answer = compute_answer(requests, steps, [goal], float(users), seed=seed)
        except WorkbenchError as error:
            return Judged(seed, None, False, None, str(error))
        if answer.recommended is None:
            return Judged(seed, None, False, None, "; ".join(answer.reasons))
        table = simulate_verification(service, config, users, answer.recommended)
        verified = bool((table["verdict"] == "held").all()) if isinstance(table, pl.DataFrame) else False
        truth = find_required_gpus(service, [goal], users, answer.recommended, runs=2, requests=600, tasks=agents.tasks)
    return Judged(seed, answer.recommended, verified, truth.gpus)


def main() -> None:
    """Judge worlds and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    found = [judge_world(seed) for seed in range(asked.first, asked.first + asked.count)]
    for one in found:
        print(one)
    known = [one for one in found if one.recommended is not None and one.needed is not None]
    enough = [one for one in known if (one.recommended or 0) >= (one.needed or 0)]
    verified = [one for one in known if one.verified]
    wrong = [one for one in verified if one not in enough]
    print(
        f"{len(known)} of {len(found)} answered; enough {len(enough)}; {len(verified)} verified, {len(wrong)} too few"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
