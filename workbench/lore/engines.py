"""Another engine in a replay: started with the session, switched on for one side, shown to have run the operator."""

from __future__ import annotations

from typing import Any

from workbench.lore.bridge import class_of
from workbench.lore.measuring import CONVERSIONS
from workbench.lore.rebuild import Rebuilt

# What tasks of an engine send to the driver: results and errors of classes of its own.
SERIAL_FILTER = {"comet": "org.apache.comet.**;org.apache.spark.sql.comet.**;"}
# Nodes of Comet that carry rows across its border and do none of the operator's work.
_BORDER = (*CONVERSIONS, "CometColumnarToRowExec", "CometNativeColumnarToRowExec", "CometSinkPlaceHolder")


class NotAccelerated(Exception):  # noqa: N818 - an outcome that is told, not a fault
    """The engine left the operator to Spark; the text says why."""


def engine_settings(engine: str) -> dict[str, str]:
    """Settings that the session must start with so that one of its sides can be this engine."""
    if engine == "spark":
        return {}
    from workbench.spark import jars
    from workbench.spark.engines import ENGINES, class_paths

    known = ENGINES[engine]
    jar = jars.resolve(known.artifact, say=lambda _: None) if known.artifact else None
    return {**known.settings, **(class_paths(jar) if jar else {})}


def switched(engine: str, started: str) -> dict[str, str]:
    """Settings of one side of a session that was started with an engine."""
    if started == "spark":
        return {}
    on = str(engine == started).lower()
    # A dump's rows come as an RDD, which Comet takes in by its conversion to batches; its time is measured apart.
    return {
        "spark.comet.enabled": on,
        "spark.comet.exec.enabled": on,
        "spark.comet.sparkToColumnar.enabled": on,
        "spark.comet.convert.parquet.enabled": "false",
    }


def require_accelerated(rebuilt: Rebuilt, engine: str, operator: str) -> bool | None:
    """Did the engine's own operator come into the plan? Null where no engine was asked for.

    Raises
    ------
    NotAccelerated
        It did not.
    """
    if engine == "spark":
        return None
    found: list[str] = []

    def visit(plan: Any) -> None:
        found.append(class_of(plan))
        for child in rebuilt.bridge.listed(plan.children()):
            visit(child)

    visit(rebuilt.plan)
    if any(name.startswith("Comet") and name not in _BORDER for name in found):
        return True
    raise NotAccelerated(_reason(rebuilt) or f"{engine} left {operator} to Spark and did not say why")


def _reason(rebuilt: Rebuilt) -> str:
    """What the engine says of its own choice."""
    text = rebuilt.bridge.jvm.org.apache.comet.ExtendedExplainInfo().generateExtendedInfo(rebuilt.plan)
    return " ".join(str(text).split())[:500]
