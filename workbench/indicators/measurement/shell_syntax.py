"""Syntax of commands that their shell does not know: bash's own in a plain `sh`, and any where there is no shell."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from workbench.core.errors import ConfigError

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
