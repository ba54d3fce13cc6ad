"""Queries of known rows, dumped and replayed by LORE: never wrong in silence, and not mute.

A world draws tables, a query with traits, settings, an operator and options of the dump. The product sees the session
and the query; the truth is what the query itself gave, what Spark counted, and the same query over changed tables.

python -m tests.worlds.dumps 60 --first 0 --show 10 [--line 4]
"""

from __future__ import annotations

import argparse
import datetime as dt
import decimal
import itertools
import math
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import WorkbenchError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.replays.lore_session import LoreSession

SECRET = "secret-"
ZONES = ("Europe/Berlin", "UTC", "America/St_Johns", "Asia/Kathmandu")
# What a query does that may give other rows in another run; told, refused or undecided is right there.
VARYING = {
    *("limit", "sample", "collect_list", "first", "row_ids", "random", "uuid", "varying_udf", "partition_ids"),
    *("varying_cache", "now", "collated_groups"),
}
STEPS = (
    *("filter", "project", "cache", "udf", "varying_udf", "random", "uuid", "row_ids", "partition_ids", "now"),
    *("repartition", "coalesce", "by_range", "join", "join", "aggregate", "aggregate", "collect_list", "first"),
    *("distinct_count", "window", "sort", "local_sort", "ordered_limit", "limit", "union", "distinct", "explode"),
    *("rollup", "subquery", "in_subquery", "sample", "pandas", "nested", "outer_join", "pivot"),
    *("ancient", "interval", "void", "hidden_text", "key_join", "failing_udf", "overflow"),
    *("collated", "collated_groups", "collated_join", "variant", "time"),
)
# The last thing that a query does.
ENDS = ("", "", "", "", "two_names", "odd_names", "no_columns")
# Types that no file can hold, and queries that a dump with masks must not keep.
UNSUPPORTED = {"void"}
EXPRESSIONS = {
    "bigint": ("{0} * 2 + 1", "CAST({0} AS STRING)"),
    "int": ("{0} % 7", "CAST({0} AS DECIMAL(20,3))"),
    "double": ("{0} / 3", "-{0}"),
    "float": ("{0} + 1", "CAST({0} AS DOUBLE)"),
    "string": ("upper({0})", "concat({0}, '!')", "length({0})"),
    "date": ("date_add({0}, 40)", "CAST({0} AS TIMESTAMP)"),
    "timestamp": ("date_trunc('HOUR', {0})", "CAST({0} AS STRING)", "{0} + INTERVAL 90 MINUTES"),
    "boolean": ("NOT {0}",),
    "binary": ("hex({0})",),
    "tinyint": ("CAST({0} AS INT) * 3",),
}
Answer = tuple[str, list[str]]


def draw_text(rng: random.Random) -> str:
    """Texts that readers mix up: empty, blank, of another case, in other scripts, and one to be hidden."""
    return rng.choice(["", " ", "null", "a", "A", "ä", "Ω", "x,y\n", '"q"', f"{SECRET}{rng.randrange(9)}", "é", "NaN"])


def draw_moment(rng: random.Random) -> dt.datetime:
    """A time with microseconds, before and after 1970, in the hour that summer time repeats, too."""
    days = rng.choice([-25_000, -1, 0, 19_000, 19_660])
    return dt.datetime(1970, 1, 1) + dt.timedelta(days, rng.randrange(86_400), rng.choice([0, 1, 999_999]))


def _types() -> dict[str, tuple[Any, Callable[[random.Random], Any]]]:
    import pyarrow as pa  # type: ignore[import-untyped]

    floats = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, 1e300, 0.1, 1e-310, -2.25]

    def number(digits: int, scale: int) -> Callable[[random.Random], decimal.Decimal]:
        return lambda rng: decimal.Decimal(rng.randrange(-(10**digits) + 1, 10**digits)).scaleb(
            -scale, decimal.Context(prec=60)
        )

    return {
        "bigint": (pa.int64(), lambda rng: rng.choice([0, -1, 2**63 - 1, rng.randrange(50)]) // 3),
        "int": (pa.int32(), lambda rng: rng.randrange(-5, 20)),
        "tinyint": (pa.int8(), lambda rng: rng.randrange(-128, 128)),
        "double": (pa.float64(), lambda rng: rng.choice(floats)),
        "float": (pa.float32(), lambda rng: rng.choice([0.0, -0.0, math.nan, math.inf, 1.5, -2.25])),
        "boolean": (pa.bool_(), lambda rng: rng.random() < 0.5),
        "string": (pa.string(), draw_text),
        "binary": (pa.binary(), lambda rng: bytes([rng.randrange(256) for _ in range(rng.randrange(3))])),
        "date": (pa.date32(), lambda rng: draw_moment(rng).date()),
        "timestamp": (pa.timestamp("us", tz="UTC"), draw_moment),
        "timestamp_ntz": (pa.timestamp("us"), draw_moment),
        "decimal(10,2)": (pa.decimal128(10, 2), number(10, 2)),
        "decimal(38,18)": (pa.decimal128(38, 18), number(38, 18)),
        "array": (
            pa.list_(pa.int32()),
            lambda rng: [rng.choice([None, rng.randrange(5)]) for _ in range(rng.randrange(4))],
        ),
        "map": (
            pa.map_(pa.string(), pa.float64()),
            lambda rng: {f"m{n}": rng.choice([None, *floats]) for n in range(rng.randrange(3))},
        ),
        "struct": (
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
            lambda rng: {"x": rng.choice([None, 7]), "y": rng.choice([None, draw_text(rng)])},
        ),
    }


@dataclass
class World:
    """A query and how it is dumped.

    `steps`: What the query does, in order; `types`: of the columns of the large table beside id, k and s.
    `operator`: Share of the operators from below at which the dumped one is; 1 is the topmost.
    """

    seed: int
    types: list[str]
    n_rows: int
    n_files: int
    source: str
    key_type: str
    steps: list[str]
    settings: dict[str, str]
    options: dict[str, Any]
    operator: float
    partitions: bool
    traits: tuple[str, ...] = field(default=())

    @property
    def varies(self) -> bool:
        """May the query give other rows in another run?"""
        return bool(VARYING & set(self.traits))


def draw_world(seed: int) -> World:
    """Draw the tables, the query, settings and options of a dump."""
    rng = random.Random(seed)
    steps = [*(rng.choice(STEPS) for _ in range(rng.randrange(1, 5))), *filter(None, [rng.choice(ENDS)])]
    subtree = rng.choice([None, None, None, "stage", "scans", "scans"])
    options: dict[str, Any] = {"subtree": subtree} if subtree else {}
    options |= rng.choice([{}, {}, {"batch_rows": 3}, {"original_names": False}, {"keep_output_rows": 0}])
    masked = rng.random() < 0.25
    if masked:
        options |= {"mask": {rng.choice(["k", "s", "id"]): rng.choice(["hash", "hash", "null"])}, "strict": False}
    settings = {
        "spark.sql.adaptive.enabled": rng.choice(["true", "false"]),
        "spark.sql.shuffle.partitions": str(rng.choice([1, 2, 5])),
        "spark.sql.autoBroadcastJoinThreshold": rng.choice(["-1", "10485760"]),
        "spark.sql.ansi.enabled": rng.choice(["true", "false"]),
        "spark.sql.session.timeZone": rng.choice(ZONES),
        "spark.sql.codegen.wholeStage": rng.choice(["true", "true", "false"]),
        "spark.sql.parquet.enableVectorizedReader": rng.choice(["true", "true", "false"]),
        "spark.sql.files.maxPartitionBytes": rng.choice(["134217728", "1500"]),
    }
    n_rows = rng.choice([0, 1, 7, 60, 60, 200])
    world = World(
        seed,
        types=rng.sample(sorted(_types()), 3),
        n_rows=n_rows,
        n_files=rng.randrange(1, 5),
        source=rng.choice(["files", "files", "files", "rdd", "range", "cached"]),
        key_type=rng.choice(["int", "bigint", "smallint"]),
        steps=steps,
        settings=settings,
        options=options,
        operator=rng.choice([1.0, 1.0, rng.random()]),
        partitions=not subtree and rng.random() < 0.15 and bool(n_rows),
    )
    world.traits = (*dict.fromkeys([*steps, world.source, *(options.keys() - {"strict"}), *world.types]),)
    return world


def write_tables(world: World, folder: Path) -> None:
    """Write the tables t and u as a user has them: files, some of them without rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    rng = random.Random(f"rows {world.seed}")
    types = _types()
    key = {"int": pa.int32(), "bigint": pa.int64(), "smallint": pa.int16()}[world.key_type]

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    fields = [("id", pa.int64()), ("k", pa.int32()), ("s", pa.string())]
    fields += [(f"c_{number}", types[name][0]) for number, name in enumerate(world.types)]
    rows = [
        {"id": number, "k": maybe(rng.randrange(8)), "s": maybe(draw_text(rng))}
        | {f"c_{place}": maybe(types[name][1](rng)) for place, name in enumerate(world.types)}
        for number in range(world.n_rows)
    ]
    other = [{"k": maybe(rng.randrange(8)), "w": number * 0.1} for number in range(12)]
    tables = {"t": (rows, pa.schema(fields)), "u": (other, pa.schema([("k", key), ("w", pa.float64())]))}
    for name, (listed, schema) in tables.items():
        (folder / name).mkdir()
        table = pa.Table.from_pylist(listed, schema=schema)
        cut = [0, *sorted(rng.randrange(len(listed) + 1) for _ in range(world.n_files - 1)), len(listed)]
        for number, (begin, end) in enumerate(itertools.pairwise(cut)):
            pq.write_table(table.slice(begin, end - begin), folder / name / f"part-{number}.parquet")


def build_query(world: World, spark: SparkSession, folder: Path, without: tuple[int, ...] = ()) -> DataFrame:
    """The query; `without` leaves out rows of t by their id."""
    rng = random.Random(f"query {world.seed}")
    frame = spark.read.parquet(str(folder / "t"))
    if world.source == "range":
        texts = f"IF(id % 5 = 0, NULL, concat('{SECRET}', id % 9)) AS s"
        frame = spark.range(0, world.n_rows, 1, 3).selectExpr(
            "id", "CAST(id % 8 AS INT) AS k", texts, "id * 0.1D AS c_0", "CAST(id AS DECIMAL(12,3)) AS c_1",
            "array(id, NULL) AS c_2",
        )  # fmt: skip
    elif world.source == "rdd":
        frame = spark.createDataFrame(frame.rdd, frame.schema)
    if without:
        frame = frame.where(f"id NOT IN ({', '.join(map(str, without))})")
    if world.source == "cached":
        frame = frame.cache()
    spark.read.parquet(str(folder / "u")).createOrReplaceTempView("u")
    for step in world.steps:
        frame = _apply_step(step, frame, spark, rng)
    return frame


def _apply_step(step: str, frame: DataFrame, spark: SparkSession, rng: random.Random) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    key = "k" if "k" in frame.columns else frame.columns[0]
    kinds = dict(frame.dtypes)
    some = rng.choice(frame.columns)
    numeric = [name for name, kind in kinds.items() if kind in ("bigint", "int", "double", "float", "tinyint")]
    number = rng.choice([*numeric, ""]) or "1"
    flat = [name for name, kind in kinds.items() if not kind.startswith(("map", "array", "struct"))]
    hint, how = (
        rng.choice(["broadcast", "merge", "shuffle_hash"]),
        rng.choice(["inner", "left", "left_semi", "left_anti"]),
    )
    n = rng.choice([1, 3, 6])
    is_line_4 = spark.version.startswith("4")
    u = spark.table("u")
    name = f"n_{len(frame.columns)}"
    udf_of = {
        "udf": lambda v: None if v is None else f"<{v}>",
        "varying_udf": lambda v: f"{v}{__import__('random').random()}",
    }
    sum_of = F.sum(F.expr(f"try_add(CAST({number} AS DOUBLE), 0D)")).alias(f"{name}_sum")
    plain_aggregates = [
        sum_of,
        F.count(some).alias(f"{name}_n"),
        *([F.max(rng.choice(flat)).alias(f"{name}_max")] if flat else []),
    ]
    made: dict[str, Callable[[], DataFrame]] = {
        "filter": lambda: frame.where(f"`{key}` IS NOT NULL AND {'id % 3 <> 1' if 'id' in kinds else 'true'}"),
        "project": lambda: _project(frame, rng, name),
        "nested": lambda: frame.withColumn(
            name, F.struct(F.array(*[F.col(one) for one in [some, some]]), F.lit(None).cast("int").alias("z"))
        ),
        "cache": lambda: frame.cache(),
        "udf": lambda: frame.withColumn(
            name, F.udf(udf_of["udf"], "string")(F.col(some).cast("string") if some in flat else F.lit("x"))
        ),
        "varying_udf": lambda: frame.withColumn(name, F.udf(udf_of["varying_udf"], "string")(F.lit("x"))),
        "pandas": lambda: frame.select(*flat[:3]).mapInPandas(lambda parts: parts, frame.select(*flat[:3]).schema),
        "random": lambda: frame.withColumn(name, F.rand()),
        "uuid": lambda: frame.withColumn(name, F.expr("uuid()")),
        "row_ids": lambda: frame.withColumn(name, F.monotonically_increasing_id()),
        "partition_ids": lambda: frame.withColumn(name, F.spark_partition_id()),
        "now": lambda: frame.withColumn(name, F.current_timestamp()),
        "repartition": lambda: frame.repartition(n),
        "coalesce": lambda: frame.coalesce(n),
        "by_range": lambda: frame.repartitionByRange(n, key) if key in flat else frame,
        "join": lambda: frame.join(u.hint(hint), "k", how) if key == "k" else frame.crossJoin(u),
        "outer_join": lambda: (
            frame.join(u.withColumnRenamed("k", "uk"), F.col("uk") == F.col(key).cast("int"), "full")
            if "uk" not in kinds and key in numeric
            else frame
        ),
        "aggregate": lambda: frame.groupBy(key).agg(*plain_aggregates) if key in flat else frame.agg(*plain_aggregates),
        "collect_list": lambda: frame.groupBy(*([key] if key in flat else [])).agg(F.collect_list(some).alias(name)),
        "first": lambda: frame.groupBy(*([key] if key in flat else [])).agg(F.first(some).alias(name)),
        "distinct_count": lambda: frame.groupBy(*([key] if key in flat else [])).agg(
            F.countDistinct(*flat[:1] or [F.lit(1)]).alias(name), F.count("*").alias(f"{name}_n")
        ),
        "pivot": lambda: (
            frame.groupBy(*flat[:1]).pivot(key, [1, 2]).agg(F.count(F.lit(1)))
            if key in numeric and flat[:1] != [key]
            else frame
        ),
        "window": lambda: (
            frame.withColumn(name, F.expr(f"count(1) OVER (PARTITION BY `{key}`)")) if key in flat else frame
        ),
        "sort": lambda: frame.orderBy(*flat) if flat else frame,
        "local_sort": lambda: frame.sortWithinPartitions(*flat) if flat else frame,
        "ordered_limit": lambda: frame.orderBy(*flat).limit(5) if flat == frame.columns else frame,
        "limit": lambda: frame.limit(4),
        "union": lambda: frame.union(frame),
        "distinct": lambda: frame.select(*flat).distinct() if flat else frame,
        "explode": lambda: frame.withColumn(name, F.explode_outer(F.expr(f"array({n}, NULL)"))),
        "rollup": lambda: frame.rollup(key).agg(F.count("*").alias(name)) if key in flat else frame,
        "subquery": lambda: _with_view(frame, spark, f"SELECT * FROM v WHERE {number} < (SELECT max(w) * 30 FROM u)"),
        "in_subquery": lambda: (
            _with_view(frame, spark, f"SELECT * FROM v WHERE `{key}` IN (SELECT k FROM u WHERE w > 0.35)")
            if key in numeric
            else frame
        ),
        "sample": lambda: frame.sample(0.5, seed=3),
        "ancient": lambda: frame.selectExpr(
            "*", f"DATE'1500-02-03' AS {name}", f"TIMESTAMP'0004-05-06 07:08:09' AS {name}_t"
        ),
        "interval": lambda: frame.selectExpr(
            "*", f"make_dt_interval({n}, 2, 3, 4.5) AS {name}", f"make_ym_interval({n}, 2) AS {name}_y"
        ),
        "void": lambda: frame.selectExpr("*", f"NULL AS {name}").repartition(2),
        "hidden_text": lambda: frame.where(f"s IS NULL OR s <> '{SECRET}3'") if "s" in kinds else frame,
        "key_join": lambda: (
            frame.hint("merge").join(u.selectExpr("CAST(k AS BIGINT) AS k").distinct().hint("merge"), "k")
            if key == "k"
            else frame
        ),
        "failing_udf": lambda: frame.withColumn(name, F.udf(_fail_now_and_then, "long")(F.spark_partition_id())),
        "overflow": lambda: frame.withColumn(name, F.expr(f"CAST(CAST({number} AS STRING) AS TINYINT)")),
        "collated": lambda: (
            frame.selectExpr("*", f"s COLLATE UTF8_LCASE AS {name}") if is_line_4 and "s" in kinds else frame
        ),
        "collated_groups": lambda: (
            frame.selectExpr(f"s COLLATE UTF8_LCASE AS {name}").groupBy(name).count()
            if is_line_4 and "s" in kinds
            else frame
        ),
        "collated_join": lambda: (
            frame.hint("merge").join(
                frame.selectExpr(f"upper(s) COLLATE UTF8_LCASE AS {name}").distinct(),
                F.expr(f"s COLLATE UTF8_LCASE = {name}"),
            )
            if is_line_4 and "s" in kinds
            else frame
        ),
        "variant": lambda: (
            frame.selectExpr("*", f"parse_json(concat('[', {n}, ', null, \"a\"]')) AS {name}") if is_line_4 else frame
        ),
        "time": lambda: (
            frame.selectExpr("*", f"TIME'12:34:56' AS {name}") if spark.version.startswith("4.1") else frame
        ),
        "two_names": lambda: frame.select("*", frame[key]),
        "odd_names": lambda: frame.toDF(*(f"{column} ,;{{}}()=.é" for column in frame.columns)),
        "no_columns": lambda: frame.select(),
    }
    return made[step]()


def _fail_now_and_then(value: int) -> int:
    if value:
        raise ValueError(f"cannot take {object()!r} at {value}")
    return value


def _with_view(frame: DataFrame, spark: SparkSession, sql: str) -> DataFrame:
    frame.createOrReplaceTempView("v")
    return spark.sql(sql)


def _project(frame: DataFrame, rng: random.Random, name: str) -> DataFrame:
    kinds = [(column, kind) for column, kind in frame.dtypes if kind in EXPRESSIONS and column != "id"]
    if not kinds:
        return frame
    column, kind = rng.choice(kinds)
    text = rng.choice(EXPRESSIONS[kind]).format(f"`{column}`")
    return frame.selectExpr(*(f"`{one}`" for one in frame.columns), f"{text} AS {name}")


@dataclass(frozen=True)
class Judged:
    """What was said of a world: right, refused or wrong, and why."""

    world: World
    state: str
    operator: str
    notes: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    @property
    def is_supported(self) -> bool:
        """Do the documents promise a dump: no type without values, no masked text in a condition, nothing random?"""
        traits = set(self.world.traits)
        return not (self.world.varies or traits & UNSUPPORTED or {"mask", "hidden_text"} <= traits or
                    {"mask", "subtree"} <= traits)  # fmt: skip


def canonical(value: Any) -> str:
    """A value as text: equal for values that are the same, floats in nine digits."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return str(sorted((canonical(key), canonical(one)) for key, one in value.items()))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(canonical(one) for one in value)}]"
    return value.hex() if isinstance(value, (bytes, bytearray)) else repr(value)


def count_rows(rows: list[Any]) -> Counter[str]:
    """Rows as a multiset."""
    return Counter(canonical(tuple(row)) for row in rows)


class Judge:
    """A Spark that queries run in, and a session of LORE in another process."""

    def __init__(self, spark: SparkSession, session: LoreSession, folder: Path) -> None:
        self.spark, self.session, self.folder = spark, session, folder

    def judge_world(self, seed: int) -> Judged:
        """Run, dump and replay the query of a world; hold what is said against what is known."""
        world = draw_world(seed)
        folder = self.folder / str(seed)
        folder.mkdir()
        spark = self.spark.newSession()
        for key, value in world.settings.items():
            spark.conf.set(key, value)
        try:
            write_tables(world, folder)
            return _WorldCheck(world, spark, self.session, folder).judge()
        finally:
            self.spark.catalog.clearCache()
            shutil.rmtree(folder)


class _WorldCheck:
    def __init__(self, world: World, spark: SparkSession, session: LoreSession, folder: Path) -> None:
        self.world, self.spark, self.session, self.folder = world, spark, session, folder
        self.wrong: list[str] = []
        self.refused: list[str] = []
        self.operator = ""
        self.told: list[str] = []
        # Operators below a limit are stopped before their end: what Spark counted is less than what they give.
        self.stops = bool({"limit", "ordered_limit"} & set(world.steps))

    def judge(self) -> Judged:
        frame = build_query(self.world, self.spark, self.folder)
        try:
            rows = count_rows(frame.collect())
        except Exception as error:  # noqa: BLE001 - a value that overflows, or one that Python does not have
            if type(error).__module__.startswith(("pyspark.errors.exceptions.captured", "py4j")):
                return self._judge_failing(frame)
            rows = None
        if "cache" in self.world.steps and self.world.seed % 3 == 0:
            self.spark.catalog.clearCache()
        try:
            self._dump(frame, rows)
        except WorkbenchError as error:
            self.refused.append(str(error))
        except Exception as error:  # noqa: BLE001 - what is not a refusal is wrong
            self.wrong.append(f"died: {type(error).__name__}: {str(error)[:300]}")
        state = "wrong" if self.wrong else "refused" if self.refused else "right"
        return Judged(self.world, state, self.operator, (*self.wrong, *self.refused), tuple(self.told))

    def _judge_failing(self, frame: DataFrame) -> Judged:
        from workbench import lore

        self.operator = "failing"
        try:
            (url,) = lore.dump(frame, path=self.folder / "dump", failed=True).folders.values()
            answer = self.session.verify(self.folder / "dump" / url.rpartition("/")[2])
            if not answer.verification["word"].startswith("PASS") or "the same error" not in answer.answer:
                self.wrong.append(f"a failing query: {answer.answer[:300]}")
        except WorkbenchError as error:
            self.refused.append(str(error))
        state = "wrong" if self.wrong else "refused" if self.refused else "right"
        return Judged(self.world, state, self.operator, (*self.wrong, *self.refused))

    def _dump(self, frame: DataFrame, rows: Counter[str] | None) -> None:
        from workbench import lore

        tree = lore.tag(frame)
        can = [number for number, node in sorted(tree.nodes.items()) if node.refused is None]
        if not can:
            self.operator = "none"
            return
        lore_id = can[min(int(self.world.operator * len(can)), len(can) - 1)]
        is_top = lore_id == tree.root.lore_id
        node = tree.nodes[lore_id]
        self.operator = f"{node.name} {lore_id} of {len(tree.nodes)}{', top' if is_top else ''}"
        options = dict(self.world.options)
        mask = options.pop("mask", None)
        names = _list_input_names(node)
        if mask and (name := next(iter(mask))) in names:
            options["mask"] = {name: mask[name]}
        chosen = [0] if self.world.partitions else None
        result = lore.dump(frame, {lore_id: chosen}, self.folder / "dump", tree=tree, **options)
        self.told = list(result.warnings)
        if not result.folders:
            raise WorkbenchError("; ".join(result.refused.values()))
        folder = self.folder / "dump" / f"loreId-{lore_id}"
        whole = chosen is None and "mask" not in options
        if whole:
            self._check_rows(node, folder, rows if is_top else None, frame)
        if "mask" in options:
            self._check_mask(folder, *next(iter(options["mask"].items())))
            if self.world.steps[-1] == "key_join" and node.name == "SortMergeJoin" and options["mask"] == {"k": "hash"}:
                self._check_masked_join(node, folder)
        self._verify(folder)
        if is_top and whole and options.get("subtree") == "scans":
            self._run_changed(folder)
        if whole and is_top and not self.world.varies:
            self._run_null(folder)

    def _check_rows(self, node: Any, folder: Path, rows: Counter[str] | None, frame: DataFrame) -> None:
        """The rows of the dump are those that Spark counted, and at the top those of the query; else it is told."""
        from workbench.lore.dumps.dump_folder import read_sidecar

        output = read_sidecar(folder).output
        n_rows = sum(one.n_rows for one in output.fingerprint.values())
        if output.error is not None:
            self.wrong.append(f"the dump failed: {output.error}")
        elif node.rows is not None and node.runs == 1 and node.rows != n_rows and not self.stops:
            self.wrong.append(f"{n_rows} rows, Spark counted {node.rows}")
        if rows is None or not output.kept:
            return
        from pyspark.sql.types import StructField, StructType

        names = [column.stored_as for column in output.columns]
        schema = StructType([StructField(name, one.dataType) for name, one in zip(names, frame.schema, strict=True)])
        files = [str(path) for path in (folder / "output").rglob("*.parquet")]
        kept = count_rows(self.spark.read.schema(schema).parquet(*files).select(*names).collect())
        if kept != rows and not self.told:
            self.wrong.append(f"other rows than the query: {list(kept - rows)[:2]} for {list(rows - kept)[:2]}")

    def _check_mask(self, folder: Path, name: str, how: str) -> None:
        """No masked text stands in any file of the dump; a null mask has nulls only."""
        from workbench import lore
        from workbench.lore.dumps.dump_folder import read_sidecar

        opened = lore.open(folder)
        for table in opened.inputs.values():
            if name in table.columns and how == "null" and table[name].null_count() < table.height:
                self.wrong.append(f"{name} is not null in an input")
            if name == "s" and "s" in table.columns and table["s"].cast(str).str.contains(SECRET).any():
                self.wrong.append("a text is not masked")
        texts = (folder / "plan.json").read_bytes() + (folder / "plan.meta").read_bytes()
        if name == "s" and SECRET.encode() in texts and self.world.source != "range":
            self.wrong.append("the plan has a masked text")
        if read_sidecar(folder).masked is None:
            self.wrong.append("not said to be masked")

    def _check_masked_join(self, node: Any, folder: Path) -> None:
        """Keys that were equal are equal when they are masked, also between an int and a bigint."""
        from workbench.lore.dumps.dump_folder import read_sidecar

        n_rows = sum(one.n_rows for one in read_sidecar(folder).output.fingerprint.values())
        if node.rows is not None and n_rows != node.rows and not self.world.partitions:
            self.wrong.append(f"masked keys give {n_rows} rows, the keys {node.rows}")

    def _verify(self, folder: Path) -> None:
        from workbench.lore.dumps.dump_folder import read_sidecar

        word = self.session.verify(folder).verification["word"]
        if word == "FAIL" or (word == "UNDECIDED" and not self.world.varies):
            self.wrong.append(f"verify says {word}: {self.session.verify(folder).answer[:300]}")
        if self.world.seed % 4 == 0 and read_sidecar(folder).output.fingerprint:
            other = folder.with_name("other")
            shutil.copytree(folder, other)
            _sign_other_rows(other)
            if (word := self.session.verify(other).verification["word"]).startswith("PASS"):
                self.wrong.append(f"{word} for other rows")
            shutil.rmtree(other)

    def _run_changed(self, folder: Path) -> None:
        """The subtree over fewer rows gives what the query gives over them."""
        from workbench import lore
        from workbench.lore.dumps.dump_folder import read_sidecar

        inputs = {name: table for name, table in lore.open(folder).inputs.items() if "id" in table.columns}
        # The second place of an exchange that is used twice is an input of its own, whose rows have no ids.
        if self.world.varies or not inputs or "[reused]" in read_sidecar(folder).tree:
            return
        import polars as pl

        without = tuple(range(0, self.world.n_rows, 3)) or (0,)
        changed = {name: table.filter(~pl.col("id").is_in(without)) for name, table in inputs.items()}
        if self.world.steps[-1] == "no_columns":
            return
        found = self.session.run(folder, changed)
        wanted = build_query(self.world, self.spark, self.folder, without)
        n_wanted = wanted.count()
        if found.height != n_wanted:
            self.wrong.append(f"lore run gives {found.height} rows, the query {n_wanted}")
            return
        flat = [name for name, kind in wanted.dtypes if kind in ("bigint", "int", "string", "double", "boolean")]
        if len(set(wanted.columns)) < len(wanted.columns) or not flat:
            return
        given, true = (
            count_rows(found.select(flat).rows()),
            count_rows(wanted.select(*map("`{}`".format, flat)).collect()),
        )
        if given != true:
            self.wrong.append(f"lore run: {list(given - true)[:2]} for {list(true - given)[:2]}")

    def _run_null(self, folder: Path) -> None:
        """A null where the plan has none is refused."""
        from workbench import lore
        from workbench.lore.dumps.dump_folder import read_sidecar

        sidecar = read_sidecar(folder)
        for entry in sidecar.inputs:
            strict = [column for column in entry.columns if not column.nullable]
            table = lore.open(folder).inputs[f"input-{entry.index}"]
            if not strict or not table.height or len(set(table.columns)) < len(entry.columns):
                continue
            import polars as pl

            name = table.columns[entry.columns.index(strict[0])]
            nulls = table.with_columns(pl.lit(None, dtype=table[name].dtype).alias(name))
            try:
                self.session.run(folder, {f"input-{entry.index}": nulls})
            except WorkbenchError:
                return
            self.wrong.append(f"lore run took a null in {name}, which has none")
            return


def _sign_other_rows(folder: Path) -> None:
    """Write plan.json as if the original had given other rows, of which it kept none."""
    from tests.lore.local_spark import sign_other_rows, signed_anew
    from workbench.lore.trust import trust_check

    sidecar = trust_check.check_trust(folder)
    signed_anew(folder, sidecar.model_copy(update={"output": sidecar.output.model_copy(update={"kept": False})}))
    sign_other_rows(folder)


def _list_input_names(node: Any) -> set[str]:
    bridge_list = [child.java.output() for child in node.children]
    return {str(output.apply(place).name()) for output in bridge_list for place in range(int(output.size()))}


@contextmanager
def open_judge() -> Iterator[Judge]:
    """A judge with its two Sparks, for the worlds of a block."""
    from tests.lore.local_spark import SMALL
    from workbench import lore
    from workbench.lore.spark_bridge import replay_session

    settings = {"spark.driver.extraJavaOptions": SMALL["spark.driver.extraJavaOptions"]}
    with (
        tempfile.TemporaryDirectory(prefix="worlds-") as scratch,
        replay_session.fresh_session(master="local[2]", filtered=False, settings=settings) as spark,
        lore.session() as session,
    ):
        yield Judge(spark, session, Path(scratch))


def describe_findings(found: list[Judged], n_shown: int) -> list[str]:
    """Counts by trait, and the worlds that were wrong or refused."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        for key in (
            "all",
            *(["all supported"] if one.is_supported else []),
            *one.world.traits,
            one.operator.partition(" ")[0],
        ):
            counts.setdefault(key, Counter())[one.state] += 1
    out = [f"{'trait':26}{'worlds':>8}{'right':>8}{'refused':>9}{'wrong':>7}"]
    for key, count in counts.items():
        if key.startswith("all") or count["wrong"] or count["refused"]:
            out.append(f"{key:26}{count.total():8}{count['right']:8}{count['refused']:9}{count['wrong']:7}")
    told = sum(bool(one.told) for one in found if not one.world.varies and "mask" not in one.world.options)
    out.append(f"told though nothing varies: {told}")
    for state in ("wrong", "refused"):
        for one in [one for one in found if one.state == state][:n_shown]:
            steps = ",".join(one.world.steps)
            place = f"{one.world.seed} {one.world.source} {steps} {one.world.options} {one.operator}"
            out.append(f"{state.upper()} {place} | " + " ".join("; ".join(one.notes).split())[:500])
    return out


def main() -> None:
    """Judge worlds and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--line", choices=["3.5", "4"], default="3.5")
    chosen = parser.parse_args()
    if chosen.line == "4" and "WORLDS_LINE" not in os.environ:
        from workbench.spark.jvm import build_spark_environment

        beside = os.environ | build_spark_environment("4.1") | {"WORLDS_LINE": "4"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.worlds.dumps", *sys.argv[1:]], beside)
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_CONFIG_HOME"] = home
        with open_judge() as judge:
            found = []
            from pyspark.errors import AnalysisException

            for seed in range(chosen.first, chosen.first + chosen.n):
                try:
                    found.append(judge.judge_world(seed))
                except AnalysisException:
                    print(seed, "Spark itself refuses this query", flush=True)
                    continue
                if found[-1].state != "right":
                    print(seed, found[-1].state, " ".join(found[-1].notes)[:200].replace("\n", " "), flush=True)
    sys.stdout.write("\n".join(describe_findings(found, chosen.show)) + "\n")


if __name__ == "__main__":
    main()
