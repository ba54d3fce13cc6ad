"""Dumps of ordinary actions: the keys set on the session say what, and no query is changed for it.

A listener hears of every action when it has ended, with its final plan; a thread of ours then dumps from what was
shuffled. The action's own time is not touched, but cores are shared while a dump runs.
"""

from __future__ import annotations

import queue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from workbench.errors import WorkbenchError
from workbench.lore import config
from workbench.lore.bridge import bridge, class_of
from workbench.lore.dumping import Dumped, dump_tree
from workbench.lore.failure import failure_of
from workbench.lore.plan import Tree, looked_through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLUSH_MS = 60_000


class Watch:
    """Watches a session; see `lore.enable`.

    Attributes
    ----------
    dumped
        What was written, an entry for each action that the keys applied to.
    problems
        Why an action was not dumped, in the words of the error.
    """

    def __init__(self, spark: SparkSession) -> None:
        from pyspark import InheritableThread
        from pyspark.java_gateway import ensure_callback_server_started

        self.bridge = bridge(spark)
        self.dumped: list[Dumped] = []
        self.problems: list[str] = []
        self._queue: queue.Queue[tuple[Any, config.DumpSettings] | None] = queue.Queue()
        # Spark's own kind of thread: it closes its connection to the JVM when it ends.
        self._thread = InheritableThread(target=self._work, name="workbench lore", daemon=True)
        self._thread.start()
        ensure_callback_server_started(self.bridge.context._gateway)
        self._listener = _Listener(self)
        self.bridge.session.listenerManager().register(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is under way, then stop watching."""
        self.stop()

    def wait(self) -> Self:
        """Return when every action that ended before is dumped."""
        self.bridge.context._jsc.sc().listenerBus().waitUntilEmpty(FLUSH_MS)
        self._queue.join()
        return self

    def stop(self) -> None:
        """Wait, then watch no more."""
        if not self._thread.is_alive():
            return
        self.wait()
        self.bridge.session.listenerManager().unregister(self._listener)
        self._queue.put(None)
        self._thread.join()

    def heard(self, execution: Any) -> None:
        """An action ended: note what the keys ask for now; the dump itself must not hold up the listener bus."""
        try:
            spark = self.bridge.spark
            settings = config.from_session(lambda key, default: spark.conf.get(key, default))
        except WorkbenchError as error:
            self.problems.append(str(error))
            return
        if settings.ids and settings.tag_enabled:
            self._queue.put((execution, settings))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._dump(*item)
            except WorkbenchError as error:
                self.problems.append(str(error))
            except Exception as error:  # noqa: BLE001 - nobody is there to catch it: it is kept for who asks
                self.problems.append(str(failure_of(error)))
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def _dump(self, execution: Any, settings: config.DumpSettings) -> None:
        plan = execution.executedPlan()
        if class_of(looked_through(plan)) == "ExecutedCommandExec":
            return  # SET, CREATE VIEW and the like have no operators
        self.dumped.append(dump_tree(Tree.of_plan(self.bridge, plan), settings))


class _Listener:
    """Spark's QueryExecutionListener in Python."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def onSuccess(self, name: str, execution: Any, duration_ns: int) -> None:  # noqa: ARG002, N802 - Spark's signature
        """An action ended well."""
        self._watch.heard(execution)

    def onFailure(self, name: str, execution: Any, error: Any) -> None:  # noqa: ARG002, N802 - Spark's signature
        """An action failed: its plan has no results to go by."""
        self._watch.problems.append(f"{name} failed; lore.dump(df, failed=True) dumps the operator that did")

    class Java:
        """What py4j makes of it."""

        implements: tuple[str, ...] = ("org.apache.spark.sql.util.QueryExecutionListener",)
