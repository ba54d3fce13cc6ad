"""Services of GPUs that exist: settings of the simulator by GPU type and model, fitted to predictions."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("gpu_services.json")
DEFAULT_MODEL = "Qwen/Qwen3-32B-FP8"
_FITTED = ("slots", "prefill_tokens_per_s", "decode_base_s", "decode_per_sequence_s", "cache_tokens")


@functools.cache
def list_gpu_services() -> dict[tuple[str, str], dict[str, Any]]:
    """Fitted fields of `Service` by GPU type and model, with how far the simulator is off by them."""
    services: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["services"]
    return {(row["gpu_type"], row["model"]): row for row in services}


def find_fitted_fields(gpu_type: str, model: str) -> dict[str, Any]:
    """Fields of `Service` for a model on a GPU type.

    Raises
    ------
    ValueError
        Nothing is fitted for them; it says what is.
    """
    known = list_gpu_services()
    if (gpu_type, model) not in known:
        of_type = [name for kind, name in known if kind == gpu_type]
        told = f"models on {gpu_type}: {', '.join(of_type)}" if of_type else f"GPU types: {_list_types(known)}"
        raise ValueError(f"no fitted service of {model} on {gpu_type}; {told}")
    return {name: known[gpu_type, model][name] for name in _FITTED}


def _list_types(known: dict[tuple[str, str], Any]) -> str:
    return ", ".join(dict.fromkeys(gpu_type for gpu_type, _ in known))
