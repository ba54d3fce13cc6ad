"""AISimulate of NVIDIA (Apache-2.0) in packages of its own: predicts a deployment from kernels measured on a GPU type.

It is fetched once, wheels only, and needs no network afterwards. Nothing of it is in our lock.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workbench.core.child_process import ChildProcess
from workbench.core.errors import ConfigError, InputError
from workbench.core.package_folder import OnMessage, ensure_packages
from workbench.core.schema import StrictModel

VERSION = "0.13.0.dev202610270000000085"
Backend = Literal["vllm", "sglang", "trtllm"]
# What a prediction imports: its search for configurations, which we do not use, would need jax and 800 MB more.
_NEEDED = "pydantic>=2.5|pyyaml>=6|numpy>=2.1,<3|pandas>=2.2.3|pyarrow>=15|psutil>=7,<8|ijson>=3.4,<4|packaging>=20"
_WHEELS = ("--only-binary", ":all:")
_MAX_ANSWER_BYTES = 256 << 20
_NOISE = re.compile(
    r"^(?:\w*Error: |invalid engine config: |compile_engine: |AISimulate replay failed: |engine error: )+"
    r"|(?:\. )?Prediction will not fall back.*$",
    re.DOTALL,
)


class Deployment(StrictModel):
    """One replica of a model: GPU type, GPUs that share it, server.

    >>> Deployment(model="Qwen/Qwen3-32B-FP8", gpu="h100_sxm", tensor=2).name
    'h100_sxm x 2, vllm'
    """

    model: str = Field(min_length=1, max_length=300, description="Name on Hugging Face, or a folder with config.json.")
    gpu: str = Field(pattern=r"^[a-z0-9_]{1,40}$", description="GPU type, such as h100_sxm.")
    backend: Backend = Field("vllm", description="Server.")
    tensor: int = Field(1, ge=1, le=128, description="GPUs of a replica (tensor parallelism).")

    @property
    def name(self) -> str:
        """GPU type, GPUs of a replica, server."""
        return f"{self.gpu} x {self.tensor}, {self.backend}"


class Predictor:
    """A running AISimulate; `open_predictor` starts it."""

    def __init__(self, folder: Path, child: ChildProcess, scratch: Path) -> None:
        self.folder = folder
        self.cache_tokens: int | None = None  # tokens that fit into a replica's memory, of the last run
        self._child = child
        self._trace = scratch / "requests.jsonl"

    @functools.cached_property
    def models(self) -> list[str]:
        """Models whose description is in the package."""
        files = (self.folder / "aisimulate_core" / "model_configs").glob("*_config.json")
        names = {file.name.removesuffix("_config.json").removesuffix("_hf_quant") for file in files}
        return sorted(name.replace("--", "/") for name in names)

    def list_gpus(self, backend: Backend) -> list[str]:
        """GPU types with measured kernels of a server."""
        data = self.folder / "aisimulate_core" / "systems" / "data"
        return sorted({path.parents[1].name for path in data.glob(f"*/gemm/{backend}")})

    def find_architecture(self, gpu: str) -> int:
        """Generation of a GPU type: 9 for Hopper, 10 for Blackwell (the first part of its compute capability)."""
        text = (self.folder / "aisimulate_core" / "systems" / f"{gpu}.yaml").read_text(encoding="utf-8")
        found = re.search(r"^  sm_version: (\d+)", text, re.MULTILINE)
        return int(found[1]) // 10 if found else 0

    def check_deployment(self, deployment: Deployment) -> None:
        """Refuse a model or a GPU type that it does not know, and say which it does."""
        is_folder = (Path(deployment.model) / "config.json").is_file()
        if not is_folder and deployment.model not in self.models:
            near = difflib.get_close_matches(deployment.model, self.models, n=5, cutoff=0.3)
            named = deployment.model.rpartition("/")[2].lower()
            near += [name for name in self.models if named and named in name.lower() and name not in near]
            raise ConfigError(
                "not a model that AISimulate describes",
                where="--model",
                found=deployment.model,
                allowed=near or self.models,
                do="name one of these, or a folder with the model's config.json",
            )
        if deployment.gpu not in (gpus := self.list_gpus(deployment.backend)):
            raise ConfigError(
                f"no measured kernels of this GPU type with {deployment.backend}",
                where="--gpu",
                found=deployment.gpu,
                allowed=gpus,
            )

    def run(
        self,
        deployment: Deployment,
        rows: Sequence[dict[str, Any]],
        *,
        block_tokens: int,
        concurrency: int | None,
        prefill_factor: float = 1.0,
        decode_factor: float = 1.0,
    ) -> dict[str, Any]:
        """Predict what becomes of requests.

        `rows`: Lines of a Mooncake trace: `session_id`, `input_length`, `output_length`, `hash_ids` of blocks of
        `block_tokens`; the first of a session has a `timestamp`, later ones the `delay` after the answer before, in ms.
        `concurrency`: Sessions at once; null to begin them at their timestamps.
        `prefill_factor`, `decode_factor`: How much longer than predicted a prefill and a decode step take.

        Raises
        ------
        InputError
            The deployment is not possible, such as a model that does not fit into the memory.
        """
        self._trace.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        load: dict[str, Any] = {"type": "trace_timestamps"}
        if concurrency is not None:
            load = {"type": "concurrency", "concurrency": concurrency}
        shares = {"tensor": deployment.tensor, "moe_tensor": deployment.tensor}
        config = {
            "traffic": {
                "source": {
                    "type": "trace",
                    "paths": [str(self._trace)],
                    "format": "mooncake",
                    "block_size": block_tokens,
                },
                "load": load,
            },
            "engine": {
                "mode": "aggregated",
                "model": deployment.model,
                "hardware": deployment.gpu,
                "backend": deployment.backend,
                "workers": {"aggregated": {"parallelism": shares}},
            },
        }
        speeds = {"prefill_speed": 1 / prefill_factor, "decode_speed": 1 / decode_factor}
        answer: dict[str, Any] = json.loads(self._child.ask(json.dumps({"config": config, **speeds})))
        if "error" in answer:
            raise InputError(
                _NOISE.sub("", answer["error"]).strip()[:600], where=f"{deployment.model}, {deployment.name}"
            )
        self.cache_tokens = answer["cache_tokens"]
        return answer


@contextlib.contextmanager
def open_predictor(say: OnMessage, packages: Path | None = None) -> Iterator[Predictor]:
    """AISimulate in a process of its own; `say` is told when it is fetched first.

    `packages`: Folder of its packages, in the place of the one in the cache.
    """
    folder = packages or ensure_packages(
        "aisimulate",
        VERSION,
        [[*_WHEELS, *_NEEDED.split("|")], [*_WHEELS, "--no-deps", f"aisimulate=={VERSION}"]],
        marker="aisimulate_core/systems",
        size="about 200 MB, a minute",
        say=say,
        do="let this machine reach a package index once; no network is needed afterwards",
    )
    worker = Path(__file__).with_name("aisimulate_worker.py")
    with (
        tempfile.TemporaryDirectory(prefix="workbench-") as scratch,
        # -S -E: of this interpreter's packages it has only those of its folder.
        ChildProcess(
            [sys.executable, "-S", "-E", worker, folder],
            name="AISimulate",
            with_stdin=True,
            max_line_bytes=_MAX_ANSWER_BYTES,
        ) as child,
    ):
        yield Predictor(folder, child, Path(scratch))
