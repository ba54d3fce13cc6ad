"""Stack matrices: what a file may say, the arms that it gives, and sets that are merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.indicators.stacks.making import lock, stack_set
from workbench.core.child_process import CommandResult
from workbench.core.errors import ConfigError, InputError, MissingToolError
from workbench.indicators.stacks import stack_solver, uv_tool
from workbench.indicators.stacks.stack_matrix import (
    find_python_version,
    format_arm_name,
    iterate_arms,
    merge_stack_sets,
    read_stack_matrix,
    solve_stack_matrix,
)
from workbench.indicators.stacks.stack_report import format_stacks
from workbench.indicators.stacks.stack_sets import Stack, Variation, format_stack_set


def write(folder: Path, text: str) -> Path:
    path = folder / "stacks.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_combination_is_an_arm_and_versions_stay_text(tmp_path: Path) -> None:
    matrix = read_stack_matrix(
        write(tmp_path, "python: [3.10, 3.12]\npackages:\n  numpy: [2.2.6, 2.10]\n  pandas: '>=2'\nthreads: [1, 2]\n")
    )
    arms = list(iterate_arms(matrix))
    assert len(arms) == 2 * 2 * 2
    # 3.10 is no 3.1, and 2.10 no 2.1: a number of YAML would lose the zero.
    assert [arm.python for arm in arms][:1] == ["3.10"]
    assert arms[2].requirements == ("numpy==2.10", "pandas>=2")
    # A package with one level is no dimension.
    assert set(arms[0].factors) == {"python", "numpy", "threads"}
    assert len({format_arm_name(arm.factors) for arm in arms}) == 8


def test_environments_that_are_there_need_no_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise MissingToolError("uv is not installed", where="here", do="pip install uv")

    monkeypatch.setattr(uv_tool, "find_uv", missing)
    monkeypatch.setattr(uv_tool, "read_uv_version", missing)
    matrix = read_stack_matrix(write(tmp_path, "environments: {a: /opt/a, b: /opt/b}\n"))
    found = solve_stack_matrix(matrix, max_download_bytes=0)
    assert [one.environment for one in found.variations] == ["/opt/a", "/opt/b"]
    assert found.uv_version is None
    head = format_stacks(found).splitlines()[0]
    assert head.startswith("2 arms with 0 locks, for Python existing environments on ")
    assert "uv" not in head
    with pytest.raises(MissingToolError):
        solve_stack_matrix(read_stack_matrix(write(tmp_path, "packages: {numpy: 2.2.6}\n")), max_download_bytes=0)


def test_variables_indexes_and_environments_are_dimensions(tmp_path: Path) -> None:
    text = """
packages:
  numpy: {version: 2.2.6, index: [default, fast]}
indexes: {fast: https://fast.example/simple}
env: {OPENBLAS_CORETYPE: ['', Haswell], LANG: C}
environments: {mkl: /opt/conda/envs/mkl}
"""
    arms = list(iterate_arms(read_stack_matrix(write(tmp_path, text))))
    names = [format_arm_name(arm.factors) for arm in arms]
    where = ("numpy from default", "numpy from fast", "mkl")
    assert names == [f"{one}, OPENBLAS_CORETYPE={core}" for one in where for core in ("unset", "Haswell")]
    assert (arms[0].variables, arms[0].indexes) == ({"LANG": "C"}, {})
    assert arms[1].variables["OPENBLAS_CORETYPE"] == "Haswell"
    assert arms[3].indexes == {"numpy": "fast"}
    assert (arms[4].environment, arms[4].requirements) == ("/opt/conda/envs/mkl", ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("threads: [1, 2]\n", "nothing to measure"),
        ("python: [3.11]\nenvironments: {a: /b}\n", "python: needs packages"),
        ("packages: {numpy: banana}\n", "is no version"),
        ("packages: {numpy: [2.2.6, 2.2.6]}\n", "stands twice"),
        ("packages: {numpy: 2.2.6}\npackages: {pandas: 2.2.3}\n", "a key is given twice"),
        ("packages: {numpy: 2.2.6}\nthreads: [0]\n", "not between 1 and 1024"),
        ("packages: {numpy: 2.2.6}\nenv: {API_TOKEN: abc}\n", "looks like a secret"),
        ("packages: {numpy: 2.2.6}\nenv: {OMP_NUM_THREADS: ['1', '2']}\n", "use threads"),
        ("packages: {numpy: 2.2.6}\nenv: {PYTHONPATH: /x}\n", "each run sets it"),
        ("packages: {numpy: {version: 2.2.6, index: fast}}\n", "is not one of"),
        ("packages: {numpy: 2.2.6}\nindexes: {a: 'https://me:pw@host/simple'}\n", "a user or password"),
        ("packages: {numpy: 2.2.6}\nindexes: {a: 'ftp://host/simple'}\n", "neither an address"),
        ("packages: {numpy: 2.2.6}\npythons: [3.11]\n", "pythons"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("- numpy\n", "allowed"),
        ("packages: {numpy: [", "not YAML"),
    ],
)
def test_a_wrong_matrix_is_refused_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_stack_matrix(write(tmp_path, text))
    assert words in str(refused.value)
    assert "pw@host" not in str(refused.value)


def test_a_shared_lock_is_named_without_what_it_does_not_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solution = stack_set([lock({"numpy": "2.2.6"}, "0")])
    monkeypatch.setattr(stack_solver, "solve_request", lambda request, sources: solution)
    monkeypatch.setattr(uv_tool, "read_uv_version", lambda: "0.13.9")
    text = "packages: {numpy: 2.2.6}\nenv: {OPENBLAS_CORETYPE: [Haswell, '']}\nthreads: [1, 2]\n"
    seen: list[tuple[int, int]] = []
    found = solve_stack_matrix(
        read_stack_matrix(write(tmp_path, text)), max_download_bytes=0, progress=lambda *counts: seen.append(counts)
    )
    assert [stack.name for stack in found.stacks] == ["numpy==2.2.6"]
    assert (len(found.variations), seen) == (4, [(1, 1)])


def test_a_python_that_uv_does_not_find_is_rejected_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"3.9": CommandResult(0, "3.9.21\n", ""), "3.10": CommandResult(2, "", "No interpreter found")}
    monkeypatch.setattr(uv_tool, "run_uv", lambda words, **_: answers[words[-1]])
    assert (find_python_version("3.9"), find_python_version("3.10")) == ("3.9.21", None)
    matrix = read_stack_matrix(write(tmp_path, "python: [3.10]\npackages: {numpy: 2.2.6}\n"))
    (rejected,) = solve_stack_matrix(matrix, max_download_bytes=0).rejected
    assert rejected.reason == "Python 3.10 is not installed: uv python install 3.10"


def test_too_many_combinations_are_refused(tmp_path: Path) -> None:
    versions = ", ".join(f"1.{number}" for number in range(60))
    with pytest.raises(InputError, match="120 combinations, at most 100"):
        read_stack_matrix(write(tmp_path, f"packages: {{numpy: [{versions}]}}\nthreads: [1, 2]\n"))


def _stack(version: str, name: str) -> Stack:
    return lock({"numpy": version}, name)


def test_sets_are_merged_by_name_or_refused_by_it() -> None:
    old, new = _stack("1.26.4", "numpy 1.26.4"), _stack("2.2.6", "numpy 2.2.6")
    merged = merge_stack_sets([stack_set([old, new]), stack_set([new])], ["a.json", "b.json"])
    assert [stack.name for stack in merged.stacks] == ["numpy 1.26.4", "numpy 2.2.6"]
    threads = Variation(name="numpy 2.2.6, 2 threads", stack=new.key, threads=2, factors={"threads": "2"})
    both = merge_stack_sets([stack_set([old]), stack_set([new], variations=(threads,))], ["a.json", "b.json"])
    assert [one.name for one in both.variations] == ["numpy 1.26.4", "numpy 2.2.6, 2 threads"]
    told = r"two stacks of one name[\s\S]*numpy 1\.26\.4, in a\.json and in b\.json"
    with pytest.raises(ConfigError, match=told):
        merge_stack_sets([stack_set([old]), stack_set([_stack("2.0.0", old.name)])], ["a.json", "b.json"])
    with pytest.raises(ConfigError, match="the same lock and settings"):
        merge_stack_sets([stack_set([old]), stack_set([_stack("1.26.4", "another name")])], ["a.json", "b.json"])
    sets = [stack_set([one], indexes={"fast": url}) for one, url in ((old, "https://a.example"), (new, "https://b.x"))]
    with pytest.raises(ConfigError, match="two indexes of one name"):
        merge_stack_sets(sets, ["a.json", "b.json"])


def test_arms_of_one_lock_have_keys_of_their_own_and_find_it() -> None:
    only = _stack("2.2.6", "numpy 2.2.6")
    one = Variation(name="1 thread", stack=only.key, threads=1)
    two = Variation(name="2 threads", stack=only.key, threads=2)
    plain = Variation(name="plain", stack=only.key)
    found = stack_set([only], variations=(one, two, plain))
    assert len({one.key, two.key, plain.key}) == 3
    assert plain.key == only.key
    assert {found.by_arm_key[key or ""].key for key in (one.key, two.key)} == {only.key}
    # A set without a matrix is written as it always was.
    assert "variations" not in format_stack_set(stack_set([only]))
    assert "index" not in format_stack_set(stack_set([only]))
    with pytest.raises(ValueError, match="two variations have the name"):
        stack_set([only], variations=(one, one))
