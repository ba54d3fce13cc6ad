"""What is simulated: the parameters of the cluster and of the workflow that calls it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Router = Literal["least", "round_robin", "random"]


class Service(BaseModel):
    """GPUs that each run one model replica, and a workflow of some model calls with tools between them.

    A GPU holds up to `slots` sequences; more wait in line. Prefill stops the batch for `input tokens / prefill rate`;
    a decode step then gives every sequence one token and takes `decode_base_s + decode_per_sequence_s * batch`.

    Examples
    --------
    >>> Service(gpus=4, slots=16).gpus
    4
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: int = Field(default=1, ge=1, le=4096, description="GPUs, each with a replica of its own.")
    slots: int = Field(default=16, ge=1, le=100_000, description="Sequences that fit into a GPU's KV cache at once.")
    prefill_tokens_per_s: float = Field(default=40_000, gt=0, description="Prompt tokens a GPU takes in per second.")
    decode_base_s: float = Field(default=0.004, gt=0, description="Fixed part of a decode step.")
    decode_per_sequence_s: float = Field(default=0.0003, ge=0, description="What each sequence adds to a decode step.")
    input_tokens: float = Field(default=400, gt=0, description="Mean prompt length.")
    input_cv: float = Field(default=0.6, ge=0, description="Spread of prompt lengths over their mean (lognormal).")
    output_tokens: float = Field(default=60, ge=1, description="Mean answer length.")
    output_cv: float = Field(default=0.5, ge=0, description="Spread of answer lengths over their mean (lognormal).")
    calls: int = Field(default=2, ge=1, le=1000, description="Model calls of a workflow, one after the other.")
    tool_s: float = Field(default=0.0, ge=0, description="Mean time of a tool between two calls.")
    tool_cv: float = Field(default=0.3, ge=0, description="Spread of tool times over their mean (lognormal).")
    shared_s: float = Field(default=0.0, ge=0, description="Time on a resource that all share, whatever the GPUs.")
    router: Router = Field(default="least", description="Which GPU a call goes to.")
    admission: int | None = Field(default=None, ge=1, description="Workflows that run at once; more wait unseen.")
    seed: int = Field(default=0, ge=0, description="Start of the random numbers.")
