"""Old names import as before and warn once."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.core import aliases

ROOT = Path(__file__).parents[2]
TABLE = json.loads(aliases.TABLE.read_text(encoding="utf-8"))
# One package with a module, a lost name, and a name that it shares with its submodule.
FILES = {
    "oldhouse/__init__.py": "",
    "oldhouse/kept.py": "class New:\n"
    "    @classmethod\n    def from_text(cls):\n        return cls()\n\n"
    "    def format_text(self):\n        return 'a text'\n\n\n_secret = 1\n\n\ndef __getattr__(name):\n"
    "    if name == 'lazy':\n        return 'its own'\n    raise AttributeError(name)\n",
    "oldhouse/moved.py": "def new_name():\n    return 'moved'\n\n\nSTAYS = 3\n_hidden = 4\n",
    "oldhouse/package/__init__.py": "",
    "oldhouse/package/study.py": "here = True\n",
}
SMALL = {
    "modules": {"oldhouse.gone": "oldhouse.moved", "oldhouse.gone.below": "oldhouse.moved"},
    "names": {
        "oldhouse.gone": {"old_name": "new_name", "Elsewhere": "oldhouse.kept:New", "lost": "never_there"},
        "oldhouse.kept": {"Old": "New", "lazy": "New"},
        "oldhouse.package": {"study": "oldhouse.moved:new_name", "told": "oldhouse.moved:new_name"},
    },
    "methods": {"oldhouse.kept": {"New": {"of": "from_text", "told": "format_text"}}},
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `oldhouse` with aliases of its own."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [aliases.LostNames(SMALL), *sys.meta_path, aliases.OldModules(SMALL)])
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "oldhouse"]:
        del sys.modules[name]


def run_recorded(code: str) -> tuple[dict[str, Any], list[str]]:
    """The names that the code leaves, and the warnings that it gave."""
    names: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(code, "a notebook", "exec"), names)
    assert all(one.category is DeprecationWarning for one in caught)
    assert all(one.filename == "a notebook" for one in caught)
    return names, [str(one.message) for one in caught]


@pytest.mark.usefixtures("house")
def test_a_name_of_an_old_module_path_warns_once_with_the_new_name() -> None:
    names, said = run_recorded("from oldhouse.gone import old_name\nfrom oldhouse.gone import old_name as again")
    assert names["old_name"]() == "moved"
    assert names["again"] is names["old_name"]
    assert said == ["oldhouse.gone.old_name is now oldhouse.moved.new_name"]


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    ("code", "expected", "new"),
    [
        ("import oldhouse.gone\nfound = oldhouse.gone.STAYS", 3, "oldhouse.moved.STAYS"),
        ("from oldhouse import gone\nfound = gone.old_name()", "moved", "oldhouse.moved.new_name"),
        ("from oldhouse.gone.below import STAYS as found", 3, "oldhouse.moved.STAYS"),
        ("from oldhouse.gone import Elsewhere\nfound = Elsewhere.__name__", "New", "oldhouse.kept.New"),
        ("from oldhouse.kept import Old\nfound = Old.__name__", "New", "oldhouse.kept.New"),
        ("from oldhouse.package import told\nfound = told()", "moved", "oldhouse.moved.new_name"),
    ],
)
def test_old_names_load_the_new_objects(code: str, expected: object, new: str) -> None:
    names, said = run_recorded(code)
    assert names["found"] == expected
    assert [text.partition(" is now ")[2] for text in said] == [new]


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    "code",
    [
        "from oldhouse.package import study\nfound = study.here",
        "from oldhouse.kept import lazy\nfound = lazy == 'its own'",
    ],
)
def test_a_submodule_and_a_modules_own_lazy_name_win_over_an_old_name(code: str) -> None:
    names, said = run_recorded(code)
    assert names["found"] is True
    assert said == []


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("oldhouse.gone", name) for name in ("_hidden", "unknown", "lost", "__wrapped__")),
        *(("oldhouse.kept", name) for name in ("_hidden", "unknown", "__wrapped__")),
    ],
)
def test_private_and_unknown_names_are_attribute_errors(module: str, name: str) -> None:
    with pytest.raises(AttributeError):
        getattr(importlib.import_module(module), name)
    with pytest.raises(ImportError):
        exec(f"from {module} import {name}")


@pytest.mark.usefixtures("house")
def test_old_methods_of_classes_and_objects_warn_and_work() -> None:
    names, said = run_recorded("from oldhouse.kept import New\nfound = New.of().told()")
    assert names["found"] == "a text"
    assert said == ["oldhouse.kept.New.of is now from_text", "oldhouse.kept.New.told is now format_text"]


def test_every_old_method_leads_to_a_method() -> None:
    missing = [
        f"{module}.{owner}.{new}"
        for module, classes in TABLE["methods"].items()
        for owner, methods in classes.items()
        for new in methods.values()
        if not hasattr(getattr(importlib.import_module(module), owner), new)
    ]
    assert not missing


@pytest.mark.usefixtures("house")
def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("oldhouse.nowhere")


def test_installing_twice_adds_no_second_finder() -> None:
    before = list(sys.meta_path)
    aliases.install_aliases()
    assert sys.meta_path == before


def test_every_old_module_leads_to_a_module() -> None:
    modules = {*TABLE["modules"], *TABLE["names"]}
    missing = {name: home for name in modules if read_module(home := TABLE["modules"].get(name, name)) is None}
    assert not missing


def test_the_entry_point_of_earlier_installations_starts_the_command_without_a_warning() -> None:
    code = "import sys; from workbench.cli import main; main(['--version'])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("workbench ")


@functools.cache
def read_module(name: str) -> str | None:
    """The source of a module of the house; None where there is none."""
    folder = ROOT.joinpath(*name.split("."))
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return path.read_text(encoding="utf-8") if path.is_file() else None
