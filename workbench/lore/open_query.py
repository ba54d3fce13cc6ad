"""A query in a session that stays open, tagged once, of which one operator after another can be dumped."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.lore import session
from workbench.lore.commands.options import pairs
from workbench.lore.queries import query
from workbench.lore.running import tagged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from workbench.lore.notebook_config import NotebookConfig
    from workbench.lore.plan import Tree

# Below it, compiling code a second time costs more than it earns in a session that runs one query.
SMALL_BYTES = 32 << 20
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON = re.compile(r"(.+\.py):\w+")


class OpenQuery:
    """The query of a configuration; its Spark ends with `close`, and only one can be open in a process.

    Attributes
    ----------
    frame
        The query.
    tree
        Its tagged plan; null where it failed.
    failure
        What it died of, in one line; null where it did not.
    """

    _open: OpenQuery | None = None

    def __init__(self, config: NotebookConfig) -> None:
        if OpenQuery._open is not None:
            OpenQuery._open.close()
        asked = query(config.query_file, None, config.views, config.data_folder or None)
        confs = _quick(config) | pairs(config.confs, where="confs")
        self._stack = contextlib.ExitStack()
        self._dumps = 0
        self.tree: Tree | None = None
        self.failure: str | None = None
        spark = self._stack.enter_context(session.fresh(settings=confs, filtered=False))
        OpenQuery._open = self
        try:
            self.frame: DataFrame = asked.frame(spark)
            self._tag()
        except BaseException:
            self.close()
            raise

    def _tag(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            self.tree = tagged(self.frame)
        except (Py4JError, PySparkException) as error:
            from workbench.lore.failure import failure_of

            self.failure = str(failure_of(error))

    def dump(self, ids: str, path: Path) -> tuple[Path, list[str]]:
        """Dump one operator, the first that `ids` names, or the one that fails; gives loreId-N and what was told.

        Dumps after the first lie beside it, as `path-2`, `path-3` …
        """
        from workbench import lore

        self._dumps += 1
        place = path if self._dumps == 1 else path.with_name(f"{path.name}-{self._dumps}")
        if self.tree is None:
            found = lore.dump(self.frame, path=place.absolute(), failed=True)
        else:
            found = lore.dump(self.frame, ids, place.absolute(), tree=self.tree)
        if not found.folders:
            raise ConfigError("nothing was dumped", where="ids", found=ids, do="see the table of operators")
        folder = next(iter(found.folders.values()))
        return Path(re.sub(r"^file:(?://)?(?=/)", "", folder)), found.warnings

    def close(self) -> None:
        """End this query's Spark."""
        OpenQuery._open = None
        self._stack.close()


def files_of(config: NotebookConfig) -> list[str]:
    """What the query reads, for the record of the run."""
    script = _PYTHON.fullmatch(config.query_file)
    views = [text.partition("=")[2] for text in config.views]
    return [script[1] if script else config.query_file, *filter(None, [config.data_folder]), *views]


def _quick(config: NotebookConfig) -> dict[str, str]:
    """A setting that spares half of the CPU time of a query over small tables on this machine."""
    try:
        n_bytes = sum(_n_bytes(Path(name)) for name in files_of(config))
    except OSError:
        return {}
    return {_JAVA_OPTIONS: "-XX:TieredStopAtLevel=1"} if n_bytes < SMALL_BYTES else {}


def _n_bytes(path: Path) -> int:
    """Of a file or a folder; an OSError where it is not on this machine."""
    inside = (one.stat().st_size for one in path.rglob("*") if one.is_file())
    return sum(inside) if path.is_dir() else path.stat().st_size
