"""Amun specifications: what is honoured, what is refused by name, and nothing that is passed over."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.indicators.compat_thoth import amun_specification
from workbench.indicators.stacks.package_index import this_platform, this_python_version

HERE = ".".join(this_python_version().split(".")[:2])
HASH = "sha256:" + "a" * 64
ENTRY: dict[str, Any] = {"version": "==1.0", "hashes": [HASH]}
LOCK = {
    "_meta": {"requires": {"python_version": HERE}},
    "default": {"Foo_Bar": {"hashes": [HASH, "sha256:" + "0" * 64], "version": "==1.2.3"}},
    "develop": {"left-out": {"version": "*"}},
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def one(name: str = "spec.json", **changes: Any) -> Path:
        found = {"script": "print(1)\n", "python": {"requirements": {}, "requirements_locked": LOCK}} | changes
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))
        return path

    return one


def test_what_can_be_honoured_is_read(write: Write) -> None:
    path = write(
        identifier="mine",
        batch_size=12,
        environment=[{"name": "N", "value": "5"}, {"name": "REPS", "value": 7}],
        files=[{"path": "data/./a.txt", "content": "text"}],
        run={"requests": {"cpu": "1500m", "memory": "2Gi"}},
        package_manager="pipenv",
        **{"@created": "2020"},
    )
    (found,) = amun_specification.read_specifications(path)
    assert (found.name, found.rounds, found.threads, found.memory_bytes) == ("mine", 12, 2, 2 << 30)
    assert found.environment == {"N": "5", "REPS": "7"}
    assert found.sources == {"script.py": "print(1)\n", "data/a.txt": "text"}
    assert (found.python, found.notes) == (HERE, ())


def test_the_lock_becomes_a_stack_of_this_machine(write: Write) -> None:
    stack = amun_specification.read_specifications(write(identifier="mine"))[0].build_stack()
    assert (stack.name, stack.python, stack.platform) == ("mine", this_python_version(), this_platform())
    assert stack.versions == {"foo-bar": "1.2.3"}
    assert stack.lock.splitlines()[1].strip().startswith("--hash=sha256:000")


def test_all_that_cannot_be_honoured_is_named_at_once(write: Write) -> None:
    path = write(
        base="an/image",
        packages=["gcc"],
        python_packages=["x"],
        update=True,
        upgrade_pip=True,
        build={"requests": {"hardware": {"cpu_family": 6}}},
        run={"requests": {"hardware": {"cpu_family": 6}}},
        python={"runtime_environment": {"cuda_version": "11"}, "requirements_locked": LOCK},
    )
    with pytest.raises(ConfigError, match="cannot honour") as caught:
        amun_specification.read_specifications(path)
    named = [
        *("base", "packages", "python_packages", "update", "upgrade_pip", "python.runtime_environment"),
        *("build.requests.hardware", "run.requests.hardware"),
    ]
    for field in named:
        assert f"--ignore {field}" in str(caught.value)
    (found,) = amun_specification.read_specifications(path, ignored=named)
    assert len(found.notes) == len(named)
    with pytest.raises(ConfigError, match="not a field that can be ignored"):
        amun_specification.read_specifications(write(), ignored=["script"])
    # What asks for nothing is not refused.
    nothing = {"base": "process", "packages": [], "update": False, "build": {"requests": {"cpu": "1"}}}
    amun_specification.read_specifications(write(**nothing))


def test_a_lock_of_another_python_is_refused_unless_told_otherwise(write: Write) -> None:
    other = {**LOCK, "_meta": {"requires": {"python_version": "3.6"}}}
    path = write(python={"requirements_locked": other})
    with pytest.raises(ConfigError, match="another Python") as caught:
        amun_specification.read_specifications(path)
    assert "3.6" in str(caught.value)
    assert amun_specification.read_specifications(path, ignored=["python_version"])[0].python == "3.6"


def test_yaml_is_read_too_and_a_script_that_lies_beside(write: Write, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print(2)\n")
    assert amun_specification.read_specifications(write(script="old.py"))[0].sources["script.py"] == "print(2)\n"
    path = tmp_path / "spec.yaml"
    text = "script: |\n  def f(*args, **more):\n    return a & b\n"
    path.write_text(text + "python:\n  requirements_locked: " + json.dumps(LOCK) + "\n")
    (found,) = amun_specification.read_specifications(path)
    assert found.sources["script.py"].startswith("def f(*args")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("spec.yaml", "a: &a [1, 2]\nb: [*a, *a]\n", "(?s)not JSON, nor YAML.*aliases"),
        ("spec.yaml", "script: !!python/object/apply:os.system ['true']\n", "not JSON, nor YAML"),
        *(("specification", text, "not a specification") for text in ("", "[1]", "just text")),
        *(("specification", text, "not JSON, nor YAML") for text in ("{", "\x00")),
    ],
)
def test_what_is_no_specification_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=told):
        amun_specification.read_specifications(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"script": None}, "no script"),
        ({"script": "missing.py"}, "cannot read the script"),
        ({"script": "../outside.py"}, "outside the run's folder"),
        ({"files": [{"path": "../x", "content": ""}]}, "outside the run's folder"),
        ({"files": [{"path": "script.py", "content": ""}]}, "already exists"),
        ({"files": [{"path": "a", "content": ""}, {"path": "./a", "content": ""}]}, "already exists"),
        ({"files": [{"path": "a"}]}, "not a file"),
        ({"files": {"a": "b"}}, "not a list of files"),
        ({"environment": [{"name": "A B", "value": "1"}]}, "not a variable"),
        ({"environment": [{"name": "A", "value": ["1"]}]}, "not a variable's value"),
        ({"environment": {"A": "1"}}, "not a list of variables"),
        ({"batch_size": 0}, "not a number of runs"),
        ({"batch_size": 100_000}, "not a number of runs"),
        ({"run": {"requests": {"cpu": "many"}}}, "not a number of cores"),
        ({"run": {"requests": {"memory": "a lot"}}}, "not a size"),
        ({"run": [1]}, "not a specification"),
        ({"python": {}}, "no lock"),
        ({"python": {"requirements_locked": {"default": {}}}}, "an empty lock"),
        ({"surprise": 1}, "not a specification"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(write: Write, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        amun_specification.read_specifications(write(**changes))
    assert caught.value.exit_code == 2
    assert "spec.json" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("API_TOKEN", "hidden-value"), ("INDEX", "https://user:hidden@example.org/simple")]
)
def test_a_secret_does_not_belong_into_a_specification(write: Write, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="a secret cannot be part of a specification") as caught:
        amun_specification.read_specifications(write(environment=[{"name": name, "value": value}]))
    assert "environment[0]" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_what_a_run_cannot_be_given_is_refused_by_name(write: Write) -> None:
    path = write(run={"requests": {"cpu": "1", "nvidia.com/gpu": 1}, "limits": {"cpu": "2"}})
    with pytest.raises(ConfigError, match="cannot honour") as caught:
        amun_specification.read_specifications(path)
    assert "--ignore run.limits --ignore run.requests.nvidia.com/gpu" in str(caught.value)
    (found,) = amun_specification.read_specifications(path, ignored=["run.limits", "run.requests.nvidia.com/gpu"])
    assert found.threads == 1
    assert len(found.notes) == 2
    amun_specification.read_specifications(write(run={"requests": {"gpu": 0}}))


def test_a_missing_or_too_large_file_and_an_empty_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="cannot read"):
        amun_specification.read_specifications(tmp_path / "none.json")
    with pytest.raises(InputError, match="no specification there"):
        amun_specification.read_specifications(tmp_path)
    monkeypatch.setattr(amun_specification, "MAX_BYTES", 10)
    (tmp_path / "s.json").write_text("{" + " " * 20 + "}")
    with pytest.raises(InputError, match="too large"):
        amun_specification.read_specifications(tmp_path / "s.json")


def test_a_folder_is_an_inspection_or_several_specifications(write: Write, tmp_path: Path) -> None:
    for name in ("many/b.json", "many/a.yaml", "inspection/build/specification"):
        write(name)
    assert [one.name for one in amun_specification.read_specifications(tmp_path / "many")] == ["a", "b"]
    assert len(amun_specification.read_specifications(tmp_path / "inspection")) == 1


class _Serving(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/babble.py":
            self.wfile.write(b"what hidden thing is this\r\n\r\n")
            return
        body = b"print('fetched')\n" if self.path == "/ok.py" else b"x" * (2 << 20)
        self.send_response(404 if self.path == "/none.py" else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Serving) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{made.server_address[1]}"
        made.shutdown()
        thread.join()


def test_a_script_on_a_server_is_fetched_only_when_asked_for(write: Write, server: str) -> None:
    path = write(script=f"http://{server}/ok.py")
    with pytest.raises(ConfigError, match="is on a server") as caught:
        amun_specification.read_specifications(path)
    assert "--fetch-script" in str(caught.value)
    (found,) = amun_specification.read_specifications(path, fetch=True)
    digest = hashlib.sha256(b"print('fetched')\n").hexdigest()
    assert found.sources["script.py"] == "print('fetched')\n"
    assert found.notes == (f"script fetched from http://{server}/ok.py, sha256 {digest}",)


@pytest.mark.parametrize(
    ("script", "kind", "told"),
    [
        ("http://{}/none.py", RunFailedError, "cannot fetch"),
        ("http://{}/babble.py", RunFailedError, "(?s)cannot fetch the script.*BadStatusLine"),
        ("http://{}/large.py", InputError, "too large"),
        ("file:///etc/hostname", ConfigError, "not a place"),
    ],
)
def test_a_script_that_cannot_be_fetched_is_a_clear_error(
    write: Write, server: str, script: str, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told) as caught:
        amun_specification.read_specifications(write(script=script.format(server)), fetch=True)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("fetch", [False, True])
@pytest.mark.parametrize("script", ["https://user:hidden@example.org/a.py", " http://hidden@127.0.0.1:9/a.py"])
def test_a_password_in_the_script_s_url_is_refused_and_not_shown(write: Write, script: str, fetch: bool) -> None:
    with pytest.raises(ConfigError, match="a user or password in the script's URL") as caught:
        amun_specification.read_specifications(write(script=script), fetch=fetch)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"version": "==1.0"},
        {"hashes": [HASH]},
        {"version": ">=1.0", "hashes": [HASH]},
        {"git": "https://example.org/x.git", "version": "==1.0", "hashes": [HASH]},
        {"version": "==1.0", "hashes": ["md5:abc"]},
        "==1.0",
    ],
)
def test_a_package_without_a_version_and_hashes_is_refused(entry: Any) -> None:
    with pytest.raises(InputError, match="package"):
        amun_specification.read_lock_packages({"default": {"one": entry}}, "a lock")


@pytest.mark.parametrize(
    ("names", "markers", "told"),
    [
        (("one_a", "One-A"), {}, "twice"),
        (("one",), {"markers": "nonsense =="}, "marker"),
        (("one",), {"markers": "os_name ~= 'posix'"}, "a marker that cannot be read"),
    ],
)
def test_two_spellings_and_markers_that_cannot_be_read_are_refused_and_other_systems_left_out(
    names: tuple[str, ...], markers: dict[str, str], told: str
) -> None:
    lock = {"default": {"one": ENTRY, "two": {**ENTRY, "markers": "sys_platform == 'other'"}}}
    found, python = amun_specification.read_lock_packages(lock, "a lock")
    assert ([one.name for one in found], python) == (["one"], None)
    with pytest.raises(InputError, match=told):
        amun_specification.read_lock_packages({"default": dict.fromkeys(names, ENTRY | markers)}, "a lock")


def test_a_name_cannot_steer_a_terminal(write: Write) -> None:
    assert amun_specification.read_specifications(write(identifier="a\x1b[2J\nb"))[0].name == "a [2J b"
    assert amun_specification.read_specifications(write(identifier="\n"))[0].name == "specified"


def test_the_published_example_is_refused_by_name_and_read_with_consent(shared: Path) -> None:
    example = shared / "data" / "amun_example"
    with pytest.raises(ConfigError) as caught:
        amun_specification.read_specifications(example)
    for field in ("base", "packages", "python_packages"):
        assert f"--ignore {field}" in str(caught.value)
    lock = json.loads((example / "build" / "specification").read_text())["python"]["requirements_locked"]
    found, python = amun_specification.read_lock_packages(lock, "the example", ["python_version"])
    assert python == "3.6"
    assert "tensorflow" in {one.name for one in found}
