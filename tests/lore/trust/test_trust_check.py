"""Nothing of a dump is loaded before it is whole, holds only what is allowed, and is this user's or was looked at."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lore.small_dump import FILTER, contents, java_stream, sidecar_of, write_dump, write_sidecar
from workbench.core.errors import ConfigError, InputError
from workbench.lore.dumps.dump_folder import MAX_SIDECAR_BYTES, MAX_SIDECAR_PARTITIONS, Sidecar
from workbench.lore.trust import trust_check

pytestmark = pytest.mark.usefixtures("config_home")

GADGETS = """
org.apache.commons.collections.functors.InvokerTransformer org.apache.commons.collections4.functors.InvokerTransformer
org.apache.commons.beanutils.BeanComparator com.sun.org.apache.xalan.internal.xsltc.trax.TemplatesImpl
javax.management.BadAttributeValueExpException java.rmi.server.UnicastRemoteObject java.net.URL
java.lang.ProcessBuilder java.lang.Runtime java.util.PriorityQueue java.util.TreeMap
org.codehaus.groovy.runtime.ConvertedClosure scala.collection.immutable.LazyList$SerializationProxy
scala.collection.immutable.Stream scala.collection.View$Fill scala.collection.immutable.TreeMap
scala.sys.process.ProcessBuilderImpl$FileOutput$$anonfun$$lessinit$greater$3
org.apache.spark.sql.hive.HiveShim$HiveFunctionWrapper
org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering
org.apache.spark.sql.catalyst.expressions.CallMethodViaReflection
org.apache.spark.sql.catalyst.expressions.objects.NewInstance org.apache.spark.SerializableWritable
org.apache.spark.rdd.PipedRDD org.apache.spark.rdd.MapPartitionsRDD
org.apache.spark.sql.execution.joins.UnsafeHashedRelation org.example.Anything
"""


def refusal(folder: Path, **given: Any) -> InputError:
    with pytest.raises(InputError) as error:
        trust_check.check_trust(folder, **given)
    return error.value


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "loreId-3")


def foreign(folder: Path, files: dict[str, bytes] | None = None, **changed: Any) -> Path:
    """What somebody else made: whole, signed with another key."""
    return write_dump(folder, files, sign=False, hmac="ab" * 32, **changed)


def untold(text: str) -> None:
    raise AssertionError(f"told although nothing was let through: {text}")


def test_an_own_dump_is_let_through_without_a_word(dump: Path) -> None:
    found = trust_check.check_trust(dump, report=untold)
    assert found.hmac is not None
    assert found.model_copy(update={"hmac": None}) == sidecar_of(contents())


def test_every_flipped_byte_of_a_file_is_refused_naming_the_file(dump: Path) -> None:
    chance = random.Random(5)
    for name in contents():
        path = dump / name
        good = path.read_bytes()
        for _ in range(5):
            bad = bytearray(good)
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            path.write_bytes(bad)
            error = refusal(dump, trust=True, report=untold)
            assert error.what == "a file of the dump was changed"
            assert error.facts["where"] == path
        path.write_bytes(good)
    trust_check.check_trust(dump)


def test_a_flipped_byte_of_the_sidecar_is_refused_or_changes_nothing(dump: Path) -> None:
    path = dump / "plan.json"
    good, meant = path.read_bytes(), trust_check.check_trust(dump)
    chance, refusals = random.Random(6), 0
    for _ in range(200):
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        try:
            # White space between tokens is free.
            assert trust_check.check_trust(dump) == meant
        except InputError:
            refusals += 1
    assert refusals > 100


def test_a_cut_file_is_told_by_its_size_and_a_huge_sidecar_is_not_read(dump: Path) -> None:
    path = dump / "input-0" / "partition-0" / "batch-1.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    error = refusal(dump)
    assert (error.what, error.facts["where"]) == ("a file of the dump has another size", path)
    with (dump / "plan.json").open("r+b") as file:
        file.truncate(MAX_SIDECAR_BYTES + 1)
    assert refusal(dump).what == "a file of the dump is too large"


@pytest.mark.parametrize("name", list(contents()))
def test_a_missing_file_is_named(dump: Path, name: str) -> None:
    (dump / name).unlink()
    error = refusal(dump, trust=True, report=untold)
    assert error.what == "a file of the dump is missing"
    assert name in str(error)


@pytest.mark.parametrize("name", ["extra", "input-0/partition-1/batch-0.parquet", ".hidden", "input-0/.rdd.meta.crc"])
def test_a_file_too_many_is_named(dump: Path, name: str) -> None:
    (dump / name).parent.mkdir(exist_ok=True)
    (dump / name).write_text("")
    error = refusal(dump)
    assert error.what == "a file that the dump does not list"
    assert name in str(error)


@pytest.mark.parametrize("name", ["input-0/rdd.meta", "input-0", "plan.json"])
def test_a_link_is_refused_even_to_the_right_bytes(dump: Path, tmp_path: Path, name: str) -> None:
    (dump / name).rename(tmp_path / "elsewhere")
    (dump / name).symlink_to(tmp_path / "elsewhere")
    error = refusal(dump)
    assert error.facts["found"] == "a link"
    if name != "input-0":
        assert (error.what, str(error.facts["where"])) == ("not a file", str(dump / name))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(dump: Path) -> None:
    for name in ("input-0/rdd.meta", "plan.json"):
        (dump / name).unlink()
        os.mkfifo(dump / name)
        assert refusal(dump).what == "not a file"


def test_a_folder_without_a_sidecar_is_no_dump(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert error.what == "a file of the dump is missing"
    assert "loreId-N" in str(error)
    assert refusal(tmp_path / "absent").what == "a file of the dump is missing"


@pytest.mark.parametrize("name", ["plan.meta", "input-0/rdd.meta"])
def test_a_swapped_file_with_a_corrected_checksum_breaks_the_signature(dump: Path, name: str) -> None:
    files = {**contents(), name: java_stream(FILTER, "java.util.ArrayList")}
    (dump / name).write_bytes(files[name])
    write_sidecar(dump, sidecar_of(files, hmac=trust_check.read_sidecar(dump).hmac))
    error = refusal(dump, report=untold)
    assert error.what == "this dump is not signed by you"
    assert "--trust" in str(error)


def test_a_forged_dump_with_right_checksums_is_refused_without_a_signature_or_with_another(tmp_path: Path) -> None:
    refusal(foreign(tmp_path / "without a key"), report=untold)
    assert not trust_check.find_key_file().exists(), "none is made to look"
    own = write_dump(tmp_path / "own")
    trust_check.find_key_file().write_bytes(bytes(32))
    assert refusal(own, report=untold).what == "this dump is not signed by you"
    assert refusal(write_dump(tmp_path / "a", sign=False), report=untold).what == "this dump is not signed"
    assert refusal(foreign(tmp_path / "b"), report=untold).what == "this dump is not signed by you"


def test_trust_tells_what_was_found_before_it_lets_through(tmp_path: Path) -> None:
    files = contents("org.apache.spark.api.python.SimplePythonFunction", "java.util.ArrayList")
    told: list[str] = []
    found = trust_check.check_trust(foreign(tmp_path / "a", files), trust=True, report=told.append)
    assert isinstance(found, Sidecar)
    text = "\n".join(told)
    assert FILTER in text
    assert "Filter (a#7L > 2)" in text
    assert "spark.sql.shuffle.partitions = 4" in text
    assert "java.util: ArrayList" in text
    # The list in plan.json says none; the class in the stream cannot be denied.
    assert "Python functions, which will run: not named" in text
    for folder, functions, words in (
        ("b", [], "Python functions: none"),
        ("c", ["f"], "Python functions, which will run: f"),
    ):
        trust_check.check_trust(foreign(tmp_path / folder, python_functions=functions), trust=True, report=told.append)
        assert words in told


def test_trust_prints_on_stderr_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "Filter \x1b[2J(a#7L > 2) " + "x" * 10_000
    trust_check.check_trust(foreign(tmp_path / "a", operator_text=text), trust=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not signed by you: loreId 3" in printed.err
    assert "\x1b" not in printed.err
    assert len(printed.err) < 5_000


@pytest.mark.parametrize("gadget", GADGETS.split())
def test_a_class_that_is_not_allowed_is_refused_whoever_signed_it(tmp_path: Path, gadget: str) -> None:
    own = write_dump(tmp_path / "own", contents(gadget))
    for folder, trusted in ((own, False), (own, True), (foreign(tmp_path / "b", contents(gadget)), True)):
        error = refusal(folder, trust=trusted, report=untold)
        assert error.what == "plan.meta names classes that are not allowed"
        assert error.facts["where"] == folder / "plan.meta"
        assert gadget in str(error)


def test_a_plan_that_is_no_java_stream_or_of_another_operator_is_refused(tmp_path: Path) -> None:
    files = contents() | {"plan.meta": java_stream("org.apache.spark.sql.execution.SortExec")}
    error = refusal(write_dump(tmp_path / "a", files), trust=True, report=untold)
    assert error.what == "plan.meta is of another operator"
    for data in (b"", b"\x01\x00kryo", java_stream(FILTER)[:-4]):
        folder = write_dump(tmp_path / str(len(data)), contents() | {"plan.meta": data})
        refusal(folder, trust=True, report=untold)


def test_a_dump_without_a_plan_is_let_through_for_looking(tmp_path: Path) -> None:
    files = {name: data for name, data in contents().items() if name != "plan.meta"}
    assert trust_check.check_trust(write_dump(tmp_path / "a", files, has_plan=False)).has_plan is False
    assert refusal(write_dump(tmp_path / "b", files)).what == "plan.json needs a file that it does not list"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.jars", "evil.jar"),
        ("spark.driver.extraJavaOptions", "-javaagent:evil.jar"),
        ("spark.driver.extraClassPath", "evil.jar"),
        ("spark.plugins", "org.example.Evil"),
        ("spark.sql.extensions", "org.example.Evil"),
        ("spark.sql.catalog.evil", "org.example.Evil"),
        ("spark.sql.hive.metastore.jars.path", "evil.jar"),
        ("spark.sql.queryExecutionListeners", "org.example.Evil"),
        ("spark.sql.shuffle.partitions", "file:///etc/passwd"),
        ("spark.sql.shuffle.partitions", "org.example.Evil"),
        ("spark.sql.shuffle.partitions", "${env:HOME}"),
        ("spark.sql.canary.access.key", "Zq7"),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused_whoever_signed_it(tmp_path: Path, key: str, value: str) -> None:
    own = write_dump(tmp_path / "own", confs={key: value})
    for folder, trusted in ((own, False), (foreign(tmp_path / "b", confs={key: value}), True)):
        error = refusal(folder, trust=trusted, report=untold)
        assert error.what.startswith("a setting that a dump may not contain")
        assert key in str(error)
        assert error.facts["where"] == folder / "plan.json"
    error = refusal(write_dump(tmp_path / "zone", time_zone="../../etc/passwd"))
    assert error.what == "a setting that a dump may not contain: not a time zone"


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "a/../../b", "a//../b", "..", "C:evil", "a\\b", "a\nb", "plan.json", "é"]
)
def test_a_listed_name_that_leaves_the_folder_is_refused(dump: Path, name: str) -> None:
    write_sidecar(dump, trust_check.sign_sidecar(sidecar_of(contents() | {name: b""})))
    error = refusal(dump)
    assert error.what == "a file name that no dump has"
    assert "\n  found: " in str(error)
    assert str(error).count("\n") == 3


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        (["inputs", 0, "n_partitions"], 2**62, "inconsistent partitions"),
        (["inputs", 0, "n_partitions"], 2, "inconsistent partitions"),
        (["inputs", 0, "partitions"], [0, 0], "inconsistent partitions"),
        (["inputs", 0, "partitions"], [0, -2], "inconsistent partitions"),
        (["inputs", 0, "partitions"], [0], "inconsistent partitions"),
        (["inputs", 0, "batches"], {"0": 2**62, "2": 0}, "more batches than files"),
        (["inputs", 0, "batches"], {"0": -1, "2": 0}, "more batches than files"),
        (["inputs", 0, "batches"], {"0": 3, "2": 0}, "plan.json needs a file that it does not list"),
        (["inputs", 0, "index"], 1, "the inputs are not numbered from 0"),
        (["output", "n_partitions"], MAX_SIDECAR_PARTITIONS + 1, "too many partitions"),
        (["format"], "workbench-lore/2", "a dump of another format or version"),
        (["format"], None, "a dump of another format or version"),
        (["lore_id"], "3", "plan.json is invalid"),
        (["lore_id"], -1, "plan.json is invalid"),
        (["surprise"], 1, "plan.json is invalid"),
        (["files"], [], "plan.json is invalid"),
        (["hmac"], "zz", "plan.json is invalid"),
    ],
)
def test_a_sidecar_that_does_not_fit_is_refused(dump: Path, path: list[Any], value: Any, what: str) -> None:
    document = json.loads((dump / "plan.json").read_text())
    target = document
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    (dump / "plan.json").write_text(json.dumps(document))
    assert refusal(dump, trust=True, report=untold).what == what


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b"9" * 10_000, b'{"format": "workbench-lore/1"}'],
    ids=lambda raw: ascii(raw[:12]),
)
def test_a_sidecar_that_is_no_document_is_refused(dump: Path, raw: bytes) -> None:
    (dump / "plan.json").write_bytes(raw)
    assert refusal(dump).facts["where"] == dump / "plan.json"


def test_everything_in_the_sidecar_is_signed(dump: Path) -> None:
    good = trust_check.read_sidecar(dump)
    document = good.model_dump(mode="json", exclude={"hmac"})
    assert set(json.loads(good.signed_bytes())) == set(document) == set(Sidecar.model_fields) - {"hmac"}
    assert trust_check.is_signed_by_user(good)
    for name in ("operator_text", "tree", "time_zone", "created_at"):
        assert not trust_check.is_signed_by_user(good.model_copy(update={name: "other"}))


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners of files are POSIX's")


def refused_key() -> ConfigError:
    with pytest.raises(ConfigError) as error:
        trust_check.read_or_create_key()
    return error.value


def test_it_is_made_on_first_use_and_is_the_same_after(config_home: Path) -> None:
    assert trust_check.read_existing_key() is None
    key = trust_check.read_or_create_key()
    assert (len(key), key) == (32, trust_check.read_or_create_key())
    assert [path.name for path in (config_home / "workbench").iterdir()] == ["lore.key"]


@posix
def test_only_its_owner_may_read_it_whatever_the_umask(config_home: Path) -> None:
    before = os.umask(0)
    try:
        trust_check.read_or_create_key()
    finally:
        os.umask(before)
    assert stat.S_IMODE((config_home / "workbench" / "lore.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((config_home / "workbench").stat().st_mode) == 0o700


def spoil_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def spoil_by_a_link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("moved")))


def spoil_the_place(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")


@posix
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        *(
            (lambda path, mode=mode: path.chmod(mode), "is open to other users")
            for mode in (0o640, 0o604, 0o660, 0o666)
        ),
        *((lambda path, size=size: path.write_bytes(bytes(size)), "is damaged") for size in (0, 31, 33)),
        (spoil_by_a_link, "is a link"),
        (spoil_by_a_folder, ""),
        (spoil_the_place, ""),
    ],
)
def test_one_that_is_open_damaged_or_no_file_is_refused(spoil: Callable[[Path], Any], told: str) -> None:
    trust_check.read_or_create_key()
    spoil(trust_check.find_key_file())
    error = refused_key()
    assert error.what.startswith("the key of dumps " + told) or (not told and "key of dumps" in error.what)
    assert error.exit_code == 2
    if "open" in told:
        assert error.facts["where"] == trust_check.find_key_file()


@posix
def test_another_users_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trust_check.read_or_create_key()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert refused_key().what == "the key of dumps is another user's"


def test_a_dangling_link_is_not_followed_when_it_is_made(tmp_path: Path) -> None:
    trust_check.find_key_file().parent.mkdir(parents=True)
    trust_check.find_key_file().symlink_to(tmp_path / "elsewhere")
    refused_key()
    assert not (tmp_path / "elsewhere").exists()


def test_a_relative_place_counts_as_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert trust_check.find_key_file() == tmp_path / ".config" / "workbench" / "lore.key"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert trust_check.find_key_file() == tmp_path / ".config" / "workbench" / "lore.key"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert "XDG_CONFIG_HOME" in str(refused_key())


def test_a_file_system_without_hard_links_has_a_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert trust_check.read_or_create_key() == trust_check.read_or_create_key()


def made_at_once(barrier: object) -> bytes:
    barrier.wait()  # type: ignore[attr-defined]
    return trust_check.read_or_create_key()


def test_two_processes_at_once_make_one_key() -> None:
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    with context.Manager() as manager, context.Pool(4) as pool:
        found = pool.map(made_at_once, [manager.Barrier(4)] * 4, chunksize=1)
    assert len(set(found)) == 1
    assert found[0] == trust_check.read_or_create_key()
    assert len(list(trust_check.find_key_file().parent.iterdir())) == 1
