"""Stacks as a file: the same bytes, and nothing that was changed, is newer or is something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.indicators.stacks.making import stack_set
from workbench.core.errors import InputError
from workbench.indicators.stacks import stack_sets
from workbench.indicators.stacks.stack_sets import Package, RejectedPoint, Stack, build_stack, read_stack_set

HASHES = tuple("sha256:" + letter * 64 for letter in "ab")


def package(name: str, version: str, **more: Any) -> Package:
    return Package(name=name, version=version, hashes=HASHES, **more)


def stack(version: str, name: str = "") -> Stack:
    packages = [package("pytz", "1", download_bytes=5), package("numpy", version, download_bytes=7)]
    return build_stack(packages, python="3.11.7", platform="linux_x86_64", name=name)


def test_a_lock_is_sorted_and_names_no_place() -> None:
    assert stack("2.2.6").lock == "".join(
        f"{name} \\\n    --hash={HASHES[0]} \\\n    --hash={HASHES[1]}\n" for name in ("numpy==2.2.6", "pytz==1")
    )


def test_the_key_follows_from_lock_python_and_platform() -> None:
    one = stack("2.2.6")
    others = [
        stack("2.2.5"),
        build_stack(one.packages, python="3.11.8", platform="linux_x86_64"),
        build_stack(one.packages, python="3.11.7", platform="linux_aarch64"),
    ]
    assert len({one.key, *(other.key for other in others)}) == 4
    assert stack("2.2.6", "another name").key == one.key


def test_a_download_of_which_a_part_is_unknown_is_unknown() -> None:
    assert stack("2.2.6").download_bytes == 12
    parts = [package("numpy", "1", download_bytes=7), package("pytz", "1")]
    assert build_stack(parts, python="3.11.7", platform="x").download_bytes is None


def test_a_set_is_read_back_as_it_was_and_written_to_the_same_bytes(tmp_path: Path) -> None:
    made = stack_set(
        [stack("1.0", "one"), stack("2.0", "two")],
        rejected=(RejectedPoint(point="numpy 3", reason="Because …"),),
        seed=7,
        merged=2,
        context={"base": "fedora"},
        options={"step": "minor", "count": None},
    )
    path = made.write(tmp_path / "stacks.json")
    assert read_stack_set(path) == read_stack_set(tmp_path) == made
    assert path.read_bytes() == read_stack_set(path).write(tmp_path / "again.json").read_bytes()


def test_a_stack_is_found_by_name_or_by_the_start_of_its_key() -> None:
    one, two = stack("1.0", "one"), stack("2.0", "two")
    made = stack_set([one, two])
    assert made.get_stack("two") == two
    assert made.get_stack(one.key[:12]) == one
    for wanted in ("three", one.key[:4]):
        with pytest.raises(InputError, match="allowed: one, two"):
            made.get_stack(wanted)


def changed(path: Path, change: Any) -> Path:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["stacks"][0].update(lock=d["stacks"][0]["lock"].replace("a", "c")), "the lock does not match"),
        (lambda d: d["stacks"][0].update(key="0" * 64), "the file was edited"),
        (lambda d: d["stacks"][0]["packages"].reverse(), "not sorted"),
        (lambda d: d["stacks"].append(d["stacks"][0]), "two stacks have the name"),
        (lambda d: d.update(surprise=1), "surprise: there is no such field"),
        (lambda d: d["stacks"][0]["packages"][0].update(name="numpy\n--index-url x"), "name"),
        (lambda d: d.update(format_version=2), "newer workbench"),
        (lambda d: d.pop("format_version"), "no format_version"),
    ],
)
def test_what_was_changed_or_is_of_another_form_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    path = changed(stack_set([stack("1.0", "one")]).write(tmp_path / "stacks.json"), change)
    with pytest.raises(InputError, match=said) as caught:
        read_stack_set(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"a":' * 100_000])
def test_what_is_no_document_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError):
        read_stack_set(tmp_path / "x.json")


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_stack_set(tmp_path / "x.json")
    (tmp_path / "x.json").write_text(" " * 20)
    monkeypatch.setattr(stack_sets, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="too large"):
        read_stack_set(tmp_path / "x.json")
