"""`workbench lore tag` and `dump` as a user meets them: what is printed, what is refused, with which exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from tests.lore.local_spark import MARKS
from workbench.cli.app import main
from workbench.lore.commands.session import _answer_as_json
from workbench.lore.trust import trust_check

JOIN = "SELECT b.name, count(*) n FROM a JOIN b ON a.k = b.k GROUP BY b.name"
CONFS = ("spark.sql.shuffle.partitions=3", "spark.sql.autoBroadcastJoinThreshold=-1")
SMALL = ("--master", "local[2]", "--driver-memory", "1g", "--conf", CONFS[0], "--conf", CONFS[1])


class Said(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


Lore = Callable[..., Said]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    pl.DataFrame({"k": [number % 40 for number in range(300)]}).write_parquet(folder / "a.parquet")
    names = [f"name{number}" for number in range(30)]
    pl.DataFrame({"k": list(range(30)), "name": names}).write_parquet(folder / "b.parquet")
    return folder


@pytest.fixture
def lore(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lore:
    """Run a command in an empty folder; with what the JVM says, too."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Said:
        code: object = 0
        try:
            main(["lore", *map(str, arguments)])
        except SystemExit as ended:
            code = ended.code
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return Said(code if isinstance(code, int) else 0, said.out, said.err)

    return run


REFUSED = [
    (("tag",), "give one query"),
    (("tag", "--sql", "SELECT 1", "--view", "bad"), "allowed: NAME=PATH"),
    (("tag", "--sql", "SELECT 1", "--conf", "bad"), "allowed: KEY=VALUE"),
    (("dump", "--sql", "SELECT 1"), "no operator is chosen"),
    (("dump", "--sql", "SELECT 1", "--ids", "1"), "write 1[*] for all partitions"),
    (("dump", "--sql", "SELECT 1", "--ids", "1[*]"), "dumpPath"),
    (("dump", "--sql", "SELECT 1", "--ids", "1[*]", "--path", "d", "--columns", "x:a"), "0:a,b;1:c"),
    (("dump", "--sql", "SELECT 1", "--ids", "1[*]", "--path", "d", "--mask", "a"), "COLUMN=hash"),
    (("dump", "--sql", "SELECT 1", "--ids", "1[*]", "--path", "d", "--mask", "a=zip"), "'hash' or 'null'"),
    (("dump", "--sql", "SELECT 1", "--ids", "1[*]", "--path", "d", "--max-bytes", "much"), "not a size"),
    (("dump", "--sql", "SELECT 1", "--ids", "1[*]", "--path", "d", "--tagged", "nowhere"), "where: nowhere"),
    (("dump", "--sql", "SELECT 1", "--failed", "--path", "d", "--ids", "1[*]"), "found: --ids"),
    (("replay", "nowhere"), "there is no dump"),
    (("replay", "nowhere.zip"), "nowhere.zip"),
    (("replay", ".", "--engine", "photon"), "--engine"),
    (("replay", ".", "--profile", "perf"), "--profile"),
    (("replay", ".", "--profile", "jfr", "--profile-to", "nowhere/x.jfr"), "--profile-to"),
    (("replay", ".", "--driver-memory", "much"), "--driver-memory"),
    (("replay", ".", "--repeat", "5000"), "--repeat"),
    (("verify", ".", "--tolerance", "1"), "--tolerance"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=lambda value: " ".join(value)[:60])
def test_wrong_use_is_told_before_spark_starts(lore: Lore, arguments: tuple[str, ...], message: str) -> None:
    said = lore(*arguments)
    assert said.code == 2
    assert message in said.err
    assert said.out == ""


def test_a_file_that_is_no_tagged_plan_is_refused(lore: Lore, tmp_path: Path) -> None:
    for text in ("{}", "[]", "no json", '{"shape": 1}'):
        (tmp_path / "tagged.json").write_text(text)
        said = lore("dump", "--sql", "SELECT 1", "--ids", "1[*]", "--path", "d", "--tagged", "tagged.json")
        assert said.code == 2
        assert "tagged.json" in said.err


class TestInSpark:
    """What starts a session each."""

    pytestmark = MARKS

    def test_a_plan_is_tagged_and_its_operator_dumped_by_the_id_that_it_got(self, lore: Lore, data: Path) -> None:
        tagged = lore("tag", "--sql", JOIN, "--data", data, *SMALL, "--out", "tagged.json", "--json")
        assert (tagged.code, tagged.err) == (0, "")
        document = json.loads(tagged.out)
        kept = json.loads(Path("tagged.json").read_text())
        assert {key: document[key] for key in kept} == kept
        join = next(node for node in document["nodes"] if node["operator"] == "SortMergeJoin")
        assert (join["n_rows"], join["refused"]) == (230, None)
        assert f"[loreId={join['lore_id']}] SortMergeJoin" in document["tree"]

        ids = f"{join['lore_id']}[*]"
        arguments = ("--data", data, *SMALL, "--tagged", "tagged.json", "--ids", ids, "--path", "my dumps/q")
        dumped = lore("dump", "--sql", JOIN, *arguments, "--mask", "k=hash")
        assert (dumped.code, dumped.err) == (0, "")
        folder = Path("my dumps/q") / f"loreId-{join['lore_id']}"
        sidecar = trust_check.check_trust(folder)
        assert sidecar.operator == "SortMergeJoin"
        assert sidecar.masked is not None
        assert "note: " in dumped.out, "the join compares what is masked"
        # Ready to be pasted, although there is a blank in it.
        assert f"workbench lore verify '{folder.absolute()}'" in dumped.out
        assert f"loreId {join['lore_id']}, SortMergeJoin: file:" in dumped.out

        other = lore("dump", "--sql", JOIN + " HAVING n > 3", *arguments[:-1], "other")
        assert other.code == 2
        assert "the plan differs from the tagged one" in other.err
        assert "Filter" in other.err
        assert not Path("other").exists()

    @pytest.mark.parametrize("as_json", [(), ("--json",)])
    def test_without_strictness_it_is_an_error_when_nothing_at_all_was_dumped(
        self, lore: Lore, as_json: tuple[str, ...]
    ) -> None:
        sql = ("--sql", "SELECT k + 1 AS x FROM (SELECT /*+ REPARTITION(2) */ id AS k FROM range(9))")
        said = lore("dump", *sql, *SMALL, *as_json, "--non-strict", "--ids", "0[*], 99[*]", "--path", "none")
        assert said.code == 2
        assert "leaf" in (said.out if as_json else said.err)
        some = lore("dump", *sql, *SMALL, *as_json, "--non-strict", "--ids", "1[*], 99[*]", "--path", "some")
        assert some.code == 0
        assert [path.name for path in Path("some").iterdir()] == ["loreId-1"]

    @pytest.mark.parametrize("command", [("tag",), ("dump", "--ids", "1[*]", "--path", "d")])
    def test_a_query_that_fails_is_told_with_what_to_do(self, lore: Lore, command: tuple[str, ...]) -> None:
        # Fails before the plan is final.
        sql = "SELECT sum(length(CAST(raise_error(concat('stop ', id)) AS STRING))) FROM range(3)"
        said = lore(command[0], "--sql", sql, *command[1:], *SMALL)
        assert said.code == 2
        assert "stop " in said.err
        assert "workbench lore dump --failed" in said.err
        assert said.out == ""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--master", "nonsense"), "Spark does not start"),
            (("--conf", "spark.sql.shuffle.partitions=many"), "spark.sql.shuffle.partitions"),
        ],
    )
    def test_settings_that_spark_refuses_are_named(self, lore: Lore, options: tuple[str, ...], message: str) -> None:
        said = lore("tag", "--sql", "SELECT count(*) FROM range(3)", *options)
        assert said.code == 2
        assert message in said.err


def test_help_is_the_message_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _answer_as_json(["replay", "--help"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["exit_code"], answer["document"]) == (0, None)
    assert "Run a dumped operator alone" in answer["message"]
