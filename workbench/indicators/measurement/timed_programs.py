"""Programs as indicators: shell commands that are compared with each other, or one command on several stacks."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Indicator, check, result
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.shipped.indicator_classes import SCRIPTS
from workbench.indicators.stacks.package_index import this_platform, this_python_version
from workbench.indicators.stacks.stack_sets import StackSet, Variation

NO_SHELL = "none"
_PLAIN_SHELLS = frozenset({"sh", "dash", "ash", "busybox", "posh", "yash"})
_COMMAND = r"(?:^|[;&|(){}\n!]|\bif|\bthen|\belse|\belif|\bdo|\bwhile|\buntil)\s*"
_BASH = {
    "&> and >&": r"&>|>&(?!\s*(?:\d|-))",
    "|&": r"\|&",
    "<<<": r"<<<",
    "process substitution": r"[<>]\(",
    "[[": _COMMAND + r"\[\[(?=\s)",
    "((": _COMMAND + r"(?:for\s*)?\(\(",
    "an array": r"(?:^|[\s;&|])\w+\+?=\(",
    "braces": r"(?<!\$)\{[^\s{}]*(?:,|\.\.)[^\s{}]*\}",
    "== in [": r"(?:^|\s)\[\s[^]\n]*\s==\s",
    "$'…'": r"\$'",
    "a word of bash": _COMMAND
    + r"(?:function\s|source\s|declare\s|typeset\s|shopt\s|mapfile\s|readarray\s|let\s|pushd\s|popd\b|disown\b|coproc\s"
    r"|select\s|echo\s+-e\b|echo\s+-E\b|read\s+-[aNndu]|set\s+-o\s+pipefail|printf\s+-v|time\s+\()",
}
_BASH_IN_QUOTES = {
    "${…}": r"\$\{!|\$\{#?\w+(?:\[|\^|,|/|@|:\s*-?\d|:\s*\$)",
    "a variable of bash": r"\$\{?(?:RANDOM|SECONDS|EPOCHSECONDS|EPOCHREALTIME|SRANDOM|PIPESTATUS|BASH\w*|FUNCNAME)\b",
    "$((…))": r"\$\(\([^()]*(?:\*\*|\+\+|--)",
}
_OPERATORS = re.compile(r"[|<>;&`*?~]|\$[\w{(]")


def find_shell(text: str) -> str:
    """Path of a shell by its name or path; `none` stays."""
    if text == NO_SHELL:
        return text
    found = shutil.which(text)
    if found is None:
        raise ConfigError("no such shell", where="--shell", found=text[:200], allowed="a name in PATH, a path, or none")
    return str(Path(found).absolute())


def check_syntax(command: str, shell: str, where: str) -> None:
    """Refuse a command with syntax that means something else to its shell; `shell` is a path, or `none`."""
    bare, expanded = blank_quotes(command)
    if shell == NO_SHELL:
        if found := _OPERATORS.search(bare):
            raise ConfigError(
                "this needs a shell, and none is used", where=where, found=found[0], do="leave out --shell none"
            )
        return
    if Path(shell).resolve().name not in _PLAIN_SHELLS:
        return
    rules = [(name, rule, bare) for name, rule in _BASH.items()]
    rules += [(name, rule, expanded) for name, rule in _BASH_IN_QUOTES.items()]
    for name, rule, text in rules:
        if found := re.search(rule, text, re.MULTILINE):
            raise ConfigError(
                f"{shell} is {Path(shell).resolve().name}, to which this bash syntax means something else",
                where=where,
                found=f"{name}: {command[max(0, found.start() - 20) : found.end() + 20].strip()}",
                do="add --shell bash, or write it for sh",
            )


def blank_quotes(command: str) -> tuple[str, str]:
    r"""A command without what is quoted, and with what double quotes hold; blanks stand for the rest.

    >>> blank_quotes("a 'b' \"c $d\"") == ("a ' ' \"    \"", "a ' ' \"c $d\"")
    True
    """
    bare, expanded = list(command), list(command)
    quote, place = "", 0
    while place < len(command):
        char = command[place]
        if char == "\\" and quote != "'":
            for texts in (bare, expanded):
                texts[place : place + 2] = " " * len(texts[place : place + 2])
            place += 2
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                bare[place] = " "
                expanded[place] = " " if quote == "'" else char
        elif char in "'\"":
            quote = char
        elif char == "#" and (place == 0 or command[place - 1].isspace()):
            end = command.find("\n", place)
            end = len(command) if end < 0 else end
            for texts in (bare, expanded):
                texts[place:end] = " " * (end - place)
            place = end
            continue
        place += 1
    return "".join(bare), "".join(expanded)


COMMAND = "PROGRAM_COMMAND"
FOLDER = "PROGRAM_FOLDER"
INPUT = "PROGRAM_INPUT"
MAX_NAME = 40
MAX_SCANNED = 100


class Program(Indicator):
    """How long does a command take, and how much memory?

    What it prints goes into a file, and its digest must be the baseline's. The exit code is the shell's: of a pipeline
    that of its last command. Memory is at least that of the shell (1 to 2 MiB).
    """

    script: ClassVar[Path | str] = SCRIPTS / "program.py"
    elapsed_ms: float = result(unit="ms", better="lower", ge=0, about="From the start of the shell to its end.")
    peak_mib: float = result(unit="MiB", better="lower", ge=0, about="Resident memory of the largest process.")
    tree_mib: float = result(
        unit="MiB", better="lower", tolerance=0.05, ge=0,
        about="Resident memory of all processes together, as sampled while they ran; shared pages count once for each.",
    )  # fmt: skip
    output_bytes: int = result(unit="bytes", ge=0, about="Size of its output.")
    left_running: int = result(unit="", ge=0, about="Processes that still ran when it ended.")
    shell_error: str = result(unit="", about="The shell's own message about a part that it could not run.")
    output_sha256: str = check(about="Digest of its output.")
    lines_sha256: str | None = check(about="Digest of its lines in any order; null above 32 MiB.")
    ended_with: int = check(about="Its exit code.")

    @classmethod
    def list_faults(cls, document: Mapping[str, Any]) -> tuple[str, ...]:
        """Work that goes on after the command, and parts of it that the shell could not run."""
        results = document["@result"]
        left, message = results["left_running"], results["shell_error"]
        faults = [f"left {left} process(es) running when it ended"] if left else []
        return (*faults, *([f"the shell says {message}"] if message else []))


def name_command(text: str) -> str:
    """A command's name in tables: its text, cut where it is long.

    >>> name_command("sort  words.txt | uniq -c")
    'sort words.txt | uniq -c'
    """
    line = " ".join(text.split())
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"


def is_of_programs(config: SessionConfig) -> bool:
    """Whether a session measures shell commands."""
    return bool(config.command or config.commands)


def parse_commands(config: SessionConfig) -> dict[str, str]:
    """The configured commands by name, before a scan."""
    commands: dict[str, str] = {}
    for text in config.commands:
        name, equals, command = (part.strip() for part in text.partition("="))
        if not equals or not name or not command:
            raise ConfigError("not a command", where="--command", found=text[:80], allowed="NAME=COMMAND")
        if name in commands:
            raise ConfigError("two commands of one name", where="--command", found=name[:80])
        commands[name] = command
    return commands


def parse_scan(texts: tuple[str, ...]) -> dict[str, list[str]]:
    """The values of each scanned name.

    >>> parse_scan(("jobs=1,2,4",))
    {'jobs': ['1', '2', '4']}
    """
    scan: dict[str, list[str]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        values = [value.strip() for value in listed.split(",")]
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or not all(values) or len(set(values)) < len(values):
            raise ConfigError("no values to scan", where="--scan", found=text[:80], allowed="NAME=VALUE,VALUE,…")
        if name in scan:
            raise ConfigError("a name is scanned twice", where="--scan", found=name[:80])
        scan[name] = values
    return scan


def build_program_stacks(config: SessionConfig) -> StackSet:
    """An arm for each command and scanned value; the workbench's Python, without its packages, starts it."""
    commands, scan = parse_commands(config), parse_scan(config.scan)
    if unused := [name for name in scan if not any(f"{{{name}}}" in command for command in commands.values())]:
        raise ConfigError("no command has this name", where="--scan", found=unused, do=f"write {{{unused[0]}}} into it")
    variations: dict[str, Variation] = {}
    for name, command in commands.items():
        used = {key: values for key, values in scan.items() if f"{{{key}}}" in command}
        for values in itertools.product(*used.values()):
            level = dict(zip(used, values, strict=True))
            parts = [f"{key}={value}" for key, value in level.items()]
            arm_name = ", ".join([name, *parts] if len(commands) > 1 or not parts else parts)
            text = _fill_in(command, level)
            variations[arm_name] = Variation(
                name=arm_name, environment=str(Path(sys.executable).resolve()), variables={COMMAND: text}
            )
    if len(variations) > MAX_SCANNED:
        raise ConfigError("too many commands", where="--scan", found=len(variations), allowed=f"{MAX_SCANNED} in all")
    return StackSet(
        requirements=(), free=(), decision="grid", python=this_python_version(), platform=this_platform(),
        uv_version=None, stacks=(), variations=tuple(variations.values()),
    )  # fmt: skip


def _fill_in(command: str, level: Mapping[str, str]) -> str:
    """The command with a value in place of each scanned name; other braces stay."""
    for name, value in level.items():
        command = command.replace(f"{{{name}}}", value)
    return command


def build_program_variables(config: SessionConfig) -> dict[str, str]:
    """Variables of all runs: folder and search path of whoever measures, how commands start, and what goes with them.

    Raises
    ------
    ConfigError
        No such shell or input, or a command with syntax that its shell does not know.
    """
    shell = find_shell(config.shell)
    texts = {f"--command {name}": text for name, text in parse_commands(config).items()}
    asides = {"--prepare": config.prepare, "--cleanup": config.cleanup, "COMMAND": config.command}
    texts |= {where: text for where, text in asides.items() if text}
    for where, text in texts.items():
        _check_command(text, shell, where[:200])
    if config.scan and not config.commands:
        raise ConfigError("--scan is for commands, not for stacks", where="--scan", do="leave it out")
    variables = {FOLDER: str(Path.cwd()), "PROGRAM_PATH": os.environ.get("PATH", os.defpath), "PROGRAM_SHELL": shell}
    if config.input is not None:
        path = Path(config.input).absolute()
        if not path.is_file():
            raise ConfigError("no such file", where="--input", found=config.input[:200])
        variables[INPUT] = str(path)
    variables["PROGRAM_EXIT_CODES"] = ",".join(map(str, config.exit_codes))
    variables |= {"PROGRAM_PREPARE": config.prepare} if config.prepare else {}
    variables |= {"PROGRAM_CLEANUP": config.cleanup} if config.cleanup else {}
    return {**variables, COMMAND: config.command, "PROGRAM_OF_STACK": "1"} if config.command else variables


def _check_command(text: str, shell: str, where: str) -> None:
    check_syntax(text, shell, where)
    if shell == NO_SHELL:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError("not the words of a program", where=where, found=str(error)) from None
        if words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
            raise ConfigError(
                "a variable needs a shell", where=where, found=words[0][:80], do=f"write env {words[0][:40]} …"
            )


def list_program_notes(config: SessionConfig) -> list[str]:
    """Conditions of commands that a reader must know."""
    notes = [f"commands share {config.threads} core(s): --threads N gives them more"]
    notes += [
        f"{name} is the name of a command here; to set a variable write --command 'NAME={name}=…'"
        for name in parse_commands(config)
        if re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*|PATH|LANG|HOME", name)
    ]
    return notes
