"""How simulated pods end: kwok's stage `pod-complete` told to read the lifetime that a scenario gave each pod.

kwokctl's own stages complete every pod of a Job as soon as it runs, and let all others run for ever.
"""

from __future__ import annotations

from typing import Any

from workbench.errors import InputError
from workbench.scaletest.planning.objects import DELAY

STAGE = "pod-complete"
_KEY = f'.metadata.annotations["{DELAY}"]'


def with_lifetimes(configuration: str, *, where: str = "kwok.yaml") -> str:
    """kwok's configuration, in which a running pod ends after the time that its annotation says, and never without one.

    Parameters
    ----------
    configuration
        What kwokctl wrote for the kwok controller, which must be started again to read it.

    Raises
    ------
    InputError
        There is no stage pod-complete in it.
    """
    import yaml

    try:
        documents = [one for one in yaml.safe_load_all(configuration) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError("not a configuration of kwok", where=where, found=str(error)[:120]) from None
    stages = [one for one in documents if _is_stage(one)]
    if len(stages) != 1:
        raise InputError(f"not one stage {STAGE} in kwok's configuration", where=where, found=len(stages))
    spec = stages[0]["spec"]
    spec["selector"] = {
        "matchExpressions": [
            {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
            {"key": ".status.phase", "operator": "In", "values": ["Running"]},
            {"key": _KEY, "operator": "Exists"},
        ]
    }
    spec["delay"] = {"durationFrom": {"expressionFrom": _KEY}}
    return yaml.safe_dump_all(documents, sort_keys=False)


def _is_stage(document: Any) -> bool:
    if not isinstance(document, dict) or document.get("kind") != "Stage":
        return False
    return bool((document.get("metadata") or {}).get("name") == STAGE and isinstance(document.get("spec"), dict))
