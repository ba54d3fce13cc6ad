"""What a session is asked to be: checked before anything is installed or run, and kept in run.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import ConfigError

MOST_ROUNDS = 1000
MOST_MEMORY_BYTES = 8 << 30


class SessionConfig(BaseModel):
    """A session of `workbench indicators run`, by the names of its options.

    Times are in seconds, sizes in bytes. What is null is chosen: the seed at random, the memory as 8 GiB or three
    quarters of the machine's, whichever is less.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    indicators: Annotated[tuple[str, ...], Field(description="Indicators with their parameters, NAME:p=v,p=v.")] = ()
    stacks: Annotated[str | None, Field(description="File of stacks.")] = None
    stack: Annotated[tuple[str, ...], Field(description="Requirements, a stack each.")] = ()
    python: Annotated[tuple[str, ...], Field(description="Environments that are there, NAME=PATH.")] = ()
    specification: Annotated[str | None, Field(description="An Amun specification.")] = None
    ignore: Annotated[tuple[str, ...], Field(description="Fields of it that are left out.")] = ()
    baseline: Annotated[str | None, Field(description="The stack that others are compared with.")] = None
    rounds: Annotated[tuple[int, ...], Field(description="Looks: rounds after which it may stop.")] = (10, 20, 30)
    alpha: Annotated[float, Field(gt=0, lt=0.5, description="False claims that are accepted, as a share.")] = 0.05
    threads: Annotated[int, Field(ge=1, le=1024, description="Threads that libraries may use.")] = 1
    timeout_s: Annotated[float, Field(gt=0, le=86_400, description="Time limit of a run.")] = 60.0
    memory_bytes: Annotated[int | None, Field(ge=64 << 20, description="Memory limit of a run.")] = None
    processes: Annotated[int, Field(ge=1, le=100_000, description="Processes and threads of a run at most.")] = 512
    network: Annotated[bool, Field(description="Runs may reach the network.")] = False
    seed: Annotated[int | None, Field(ge=0, lt=2**63, description="Start of the random order.")] = None
    design: Annotated[Literal["rounds", "blocks"], Field(description="Blocks only to show what they do.")] = "rounds"
    max_download_bytes: Annotated[int, Field(ge=0, description="Largest download of a stack.")] = 2_000_000_000

    @model_validator(mode="after")
    def _looks(self) -> Self:
        if not self.rounds or list(self.rounds) != sorted(set(self.rounds)) or self.rounds[0] < 1:
            raise ValueError("rounds: numbers that grow, each at least 1, like 10,20,30")
        if self.rounds[-1] > MOST_ROUNDS:
            raise ValueError(f"rounds: at most {MOST_ROUNDS}")
        return self

    def memory(self, machine_bytes: int | None) -> int:
        """The memory limit of a run, in bytes; null: nobody knows what the machine has."""
        most = MOST_MEMORY_BYTES if machine_bytes is None else min(MOST_MEMORY_BYTES, machine_bytes * 3 // 4)
        return self.memory_bytes or most


def session_config(**given: Any) -> SessionConfig:
    """The configuration of these settings; those that are null are left to their defaults.

    Raises
    ------
    ConfigError
        A name is unknown, or a value out of bounds: all of them in one error.

    Examples
    --------
    >>> session_config(threads=2, seed=None).rounds
    (10, 20, 30)
    """
    try:
        return SessionConfig(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in error.errors()]
        raise ConfigError("the session cannot be like that", found=[text[:200] for text in found[:10]]) from None
