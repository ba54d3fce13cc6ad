"""Syntax that the shell of a command does not know: refused with the way out; what it does know is let through."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import ConfigError
from workbench.indicators.measurement.timed_programs import check_syntax, find_shell

OF_BASH = (
    "sleep 1 &> /dev/null", "make >& log", "a |& b", "[[ -f x ]] && cat x", "if [[ a ]]; then b; fi", "cat <<< word",
    "diff <(sort a) <(sort b)", "files=(a b)", "echo ${files[0]}", 'echo "${word^^}"', "echo ${path//a/b}",
    "echo ${word:1:2}", "for n in {1..9}; do f $n; done", "cp x.{c,h} there", "[ a == b ] && c", "echo $RANDOM",
    "echo $((2**3))", "echo $((n++))", "for ((n=0; n<3; n++)); do a; done", "source env.sh", "set -o pipefail; a | b",
    "echo -e 'a\\tb'", "function f { a; }; f", "echo $'a'",
)  # fmt: skip
OF_ANY = (
    "sort x | uniq -c > out 2>&1", "a & wait", "a && b || c", "awk '!seen[$0]++ {print $1, $2}' x", "echo a >&2",
    "find . -name '*.py' -exec cat {} \\;", "grep -E '[[:space:]]{2,3}' x", "echo ${word:-none} ${word%.c} ${#word}",
    'bash -c "[[ a == a ]]"', "bash -c 'echo {1..3}'", "test a = b", "echo '&>' \\&\\>", "tr a-z A-Z < in # [[ x ]]",
    "echo $(( 1 + 2 ))", "jq '{a: .b, c: .d}' x", "printf '%s' a", "[ a = b ]", "curl -d '{\"a\": 1, \"b\": 2}' u",
    "cmd --bash-mode", "n=$(wc -l < x); echo $n", "exec 3>&-", "(cd a; make)", "( (a) )",
)  # fmt: skip


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A shell that is no bash, wherever the test runs."""
    shell = tmp_path / "dash"
    shell.write_text("#!/bin/sh\n")
    shell.chmod(0o755)
    return str(shell)


@pytest.mark.parametrize("command", OF_BASH)
def test_syntax_of_bash_is_refused_for_another_shell_and_fine_for_bash(command: str, plain: str) -> None:
    with pytest.raises(ConfigError, match="bash syntax means something else") as refused:
        check_syntax(command, plain, "--command new")
    assert "--shell bash" in str(refused.value)
    check_syntax(command, "/opt/bin/bash", "--command new")


@pytest.mark.parametrize("command", OF_ANY)
def test_what_any_shell_knows_is_let_through(command: str, plain: str) -> None:
    check_syntax(command, plain, "--command new")


@pytest.mark.parametrize("command", ["a | b", "a > b", "ls *.py", "echo $HOME", "a; b"])
def test_without_a_shell_its_syntax_is_refused(command: str) -> None:
    with pytest.raises(ConfigError, match="needs a shell"):
        check_syntax(command, "none", "--command new")
    check_syntax("grep -c '$x | y' 'a b'", "none", "--command new")


def test_a_shell_is_found_by_name_or_path_and_an_unknown_one_is_refused(plain: str) -> None:
    assert find_shell(plain) == plain
    assert find_shell("sh").endswith("/sh")
    assert find_shell("none") == "none"
    with pytest.raises(ConfigError, match="no such shell"):
        find_shell("no-such-shell")
