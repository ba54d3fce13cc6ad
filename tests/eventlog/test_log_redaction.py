"""What must not leave a log leaves it nowhere: canaries in every place, looked for in every file and every output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from workbench.cli import app
from workbench.eventlog.log_redaction import (
    LINE_CHARS,
    REDACTED,
    Redactor,
    cut_text,
    format_bad_line,
    remove_property_secrets,
    remove_secrets,
)
from workbench.eventlog.reader import EventLogFacts, read_event_logs

LOGS = SAMPLES / "eventlogs"
CANARY = "KANARIE"
KEPT = {"spark.sql.shuffle.partitions": "200", "spark.plugins": "com.nvidia.spark.SQLPlugin"}
KEPT |= {"spark.executor.memory": "16g"}


class Canaries:
    """Gives a new canary for each place, so that a leak names the place that it came from."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def __call__(self, place: str, form: str = CANARY + "{:03d}x") -> str:
        canary = form.format(len(self.places))
        self.places[canary] = place
        return canary

    def number(self, place: str) -> str:
        return self(place, "77{:05d}99")

    def leaked(self, folder: Path, *outputs: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        texts = dict(contents(folder)) | {f"output {number}": text for number, text in enumerate(outputs)}
        for where, text in texts.items():
            for canary, place in self.places.items():
                if canary.lower() in text.lower():
                    found.setdefault(place, []).append(where)
        return found


def contents(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file as text, Parquet decoded; its raw bytes, too, for what statistics and footers hold."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(folder))
            yield name, path.read_bytes().decode("latin-1")
            if path.suffix == ".parquet":
                yield name + " (rows)", json.dumps(pl.read_parquet(path).to_dicts(), ensure_ascii=False)


def log_with_secrets(new: Canaries) -> bytes:
    """A log with a secret in every place that a log can hold one in."""

    def url(place: str) -> str:
        return f"jdbc:postgresql://{new(place + ', user')}:{new(place + ', password')}@db.example.org/x?ssl=true"

    def pair(place: str) -> str:
        return f"connect with password={new(place)} and retry"

    properties = {
        "spark.hadoop.fs.s3a.secret.key": new("property named secret"),
        "spark.hadoop.fs.s3a.access.key": new("property named access.key"),
        "spark.my.PASSWORD": new("property named password"),
        "spark.my.token": new("property named token"),
        "spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net": new("azure account key"),
        "spark.my.credential": new("property named credential"),
        "spark.executor.extraJavaOptions": f"-Djavax.net.ssl.trustStorePassword={new('value that matches')}",
        "spark.jdbc": url("property with a URL"),
        "spark.git": f"https://{new('property with a bare user')}@git.example.org/x.git",
        "spark.slash": f"https://ann:a/b{new('password with a slash')}@git.example.org/x.git",
        "spark.at": f"https://ann:a@b{new('password with an at')}@git.example.org/x.git",
        "spark.oracle": f"jdbc:oracle:thin:scott/{new('oracle')}@//db:1521/x",
    }
    job = {
        "spark.sql.execution.id": "0",
        "spark.jobGroup.id": url("job group"),
        "spark.job.description": pair("job description"),
        "spark.hadoop.fs.s3a.secret.key": new("job property"),
        "spark.redaction.string.regex": new("other job property"),
    }
    long = "x " * 1990 + f"jdbc:mysql://ann:{new('cut at the limit of a text')}@db/x"
    tree = made.plan(
        "Scan JDBCRelation(" + url("node name") + ")",
        "Scan " + url("simple string") + " " + pair("simple string, pair"),
        [made.plan("Filter", long), made.plan("Command", f"Map(user -> ann, password -> {new('scala map')})")],
        {7: "rows of " + url("metric name")},
        {"Location": "[" + url("metadata") + "]", "options": f'{{"secret":"{new("metadata, quoted")}"}}'},
    )
    start = made.sql_start(0, tree, "load " + url("sql description"))
    start["modifiedConfigs"] = {"spark.my.token": new("modified config"), "spark.x": url("modified config, URL")}
    start["physicalPlanDescription"] = url("plan description")
    submitted = made.stage_submitted(0, name="save to " + url("stage name"))
    submitted["Properties"] = job | {"spark.secret.of.stage": new("stage property")}
    exception = {"Reason": "ExceptionFailure", "Class Name": "java.sql.SQLException"}
    exception |= {"Description": "no route to " + url("task failure"), "Full Stack Trace": url("task stack trace")}
    loss = {"Reason": "TaskKilled", "Kill Reason": f"Bearer {new('bearer token')} expired"}
    return made.dump(
        made.log_start(),
        made.executor_added(host=f"https://ann:{new('host')}@worker"),
        made.environment(properties),
        made.application_start(user=url("user"), name="etl for " + url("application name")),
        start,
        made.adaptive_update(0, tree),
        made.job_start(0, [0], job),
        submitted,
        made.task_end(0, updates={7: 1}, failed=True, end=exception, name="sum " + url("accumulator name")),
        made.task_end(0, task_id=1, killed=True, end=loss),
        made.stage_completed(
            0, name="save to " + url("stage name at end"), failure=pair("failure reason"), scopes=(url("scope"),)
        ),
        made.job_end(0, "failed: " + url("job error")),
        made.sql_end(0, "failed: --password " + new("sql error")),
        made.executor_removed("1", url("removed reason")),
        b'{"Event":"SparkListenerTaskEnd","password":"' + new("bad line, near").encode() + b'" oops}',
        b'{"Event":"SparkListenerTaskEnd","Stage ID":oops,' + b" " * 200 + url("bad line, far").encode() + b"}",
        b'{"Event":"SparkListenerEnvironmentUpdate","Spark Properties":{"spark.my.secret":"'
        + new("broken environment").encode(),
        new("second half of a broken line").encode() + b'","spark.x":"y"}}',
        b"export AWS_SECRET_ACCESS_KEY=" + new("line that is no JSON").encode(),
        made.application_end(),
    )


def log_with_personal_facts(new: Canaries) -> bytes:
    """A log with users, hosts, paths and literals; `new` gives each a name of its own."""
    user, host = new("user"), new("host").lower() + ".corp.example.org"
    short = host.split(".")[0]
    text, number = new("string literal"), new.number("number literal")
    path = f"hdfs://nn.example.org:9000/data/{new('path')}"
    date, listed, like = "2031-07-19", new("in-list"), new("like")
    new.places[date] = "date literal"
    in_list = f"city#5 IN ({listed},Two {new('in-list, second word')})"
    condition = f"(city#5 = {text})) OR (zip#6L > {number})) OR (day#7 >= {date}) OR {in_list} OR city#5 LIKE %{like}%"
    calls = f"StartsWith(city#5, {new('startswith')}) AND Contains(city#5, {new('contains')})"
    aliases = f"{text} AS {text}#9, city#5, New {listed} AS New {listed}#10, myudf(city#5) AS u#11"
    pushed = (
        f"EqualTo(city,{new('pushed')}), StringStartsWith(city,{new('pushed, startswith')}), "
        f"In(city, [{new('pushed in-list')},b])"
    )
    location = f"Location: InMemoryFileIndex(1 paths)[{path}]"
    texts = {
        "Filter": f"Filter (((isnotnull(city#5) AND {condition})",
        "GpuFilter": f"GpuFilter ({calls})",
        "Project": f"Project [{aliases}]",
        "HashAggregate": f"HashAggregate(keys=[{text}#9, {listed}#10], functions=[sum(price#8), count(1)])",
        "Exchange": "Exchange hashpartitioning(city#5, 200), ENSURE_REQUIREMENTS, [plan_id=12]",
        "TakeOrderedAndProject": f"TakeOrderedAndProject(limit={number}, orderBy=[city#5 ASC NULLS FIRST])",
        f"Scan JDBCRelation((select * from people where name = '{new('node name')}') x) [numPartitions=1]": (
            f"FileScan parquet [city#5] {location}, PushedFilters: [IsNotNull(city), {pushed}], "
            "ReadSchema: struct<city:string,zip:bigint>"
        ),
    }
    metadata = {"Location": location, "PushedFilters": f"[EqualTo(city,{new('metadata')})]"}
    children = [made.plan(name, text, metadata=metadata) for name, text in texts.items()]
    tree = made.plan("AdaptiveSparkPlan", "AdaptiveSparkPlan isFinalPlan=true", children)
    description = (
        f"SELECT sum(price) FROM shop.orders -- for {new('comment')}\nWHERE city = '{new('quoted')}' "
        f"AND zip = {number} AND d = DATE '{date}' "
        f"AND x IN ('{new('quoted in-list')}', \"{new('double quoted')}\") "
        f"AND y LIKE '%{new('quoted like')}%' AND p = '{path}'"
    )
    job = {
        "spark.sql.execution.id": "0",
        "spark.jobGroup.id": f"notebook|{new('job group')}",
        "spark.job.description": f"report of {user} on {host} from {path} and /home/{new('local path')} plus/x.py",
    }
    exception = {"Reason": "ExceptionFailure", "Class Name": "java.lang.NumberFormatException"}
    exception |= {"Description": f'For input string: "{new("message, quoted")}" in {path}'}
    unquoted = f"key not found: {new('message, bare')} {new.number('message, number')} (of class java.lang.String)"
    lost = f"Lost task 0.0 in stage 1.0 (TID 3) ({short} executor 1): owner={user}, ip 10.77.66.55, {new('mail')}@x.org"
    new.places["10.77.66.55"] = "address"
    return made.dump(
        made.log_start(),
        made.executor_added(host=host),
        made.environment(
            KEPT
            | {"spark.driver.host": new("driver host"), "spark.app.name": new("app name property")}
            | {"spark.ip": "10.77.66.55", "spark.home": f"/home/{user}/spark"}
        ),
        made.application_start(user=user, name=f"etl by {user} in /srv/{new('app name, path')}"),
        made.sql_start(0, tree, description),
        made.job_start(0, [0], job),
        made.stage_submitted(0, name=f"collect at /home/{user}/nobody.py:73"),
        made.task_end(0, failed=True, end=exception),
        made.stage_completed(
            0, name=f"collect at /home/{user}/{new('stage name at end')}.py:73", failure=f"{lost} {unquoted}"
        ),
        made.job_end(0, f"{lost} {unquoted} at C:\\Users\\{new('windows path')}\\x.py"),
        made.sql_end(0, f"[CAST_INVALID_INPUT] The value '{new('sql error')}' cannot be cast to BIGINT in {path}"),
        made.executor_removed("1", f"Container from a bad node on host {host}: {new('removed reason')}"),
        f'{{"Event":"SparkListenerTaskEnd","Stage ID":{new("bad line")}}}'.encode(),
        made.application_end(),
    )


Run = Callable[..., tuple[Path, str, str]]


@pytest.fixture
def facts_of_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on a log in this process; give its folder and what it printed."""

    def run(log: str, *options: str) -> tuple[Path, str, str]:
        out = tmp_path / "out"
        with pytest.raises(SystemExit) as ended:
            app.main(["eventlog", "facts", log, "--out", str(out), "--csv", *options])
        assert ended.value.code in (0, None)
        printed = capsys.readouterr()
        return out, printed.out, printed.err

    return run


@pytest.mark.parametrize("options", [(), ("--redact",), ("--json",), ("--redact", "--json")], ids=str)
def test_a_secret_reaches_no_file_and_no_output(options: tuple[str, ...], facts_of_log: Run, tmp_path: Path) -> None:
    new = Canaries()
    log = tmp_path / "log"
    log.write_bytes(log_with_secrets(new))
    out, *printed = facts_of_log(str(log), *options)
    assert len(new.places) > 50
    assert new.leaked(out, *printed) == {}
    assert pl.read_parquet(out / "tables" / "bad_lines.parquet").height == 5


@pytest.mark.parametrize("options", [(), ("--json",)], ids=str)
def test_what_is_personal_reaches_no_file_and_no_output_with_redact(
    options: tuple[str, ...], facts_of_log: Run, tmp_path: Path
) -> None:
    new = Canaries()
    log = tmp_path / new("path of the log") / f"events_of_{new('name of the log')}"
    log.parent.mkdir()
    log.write_bytes(log_with_personal_facts(new))
    out, *printed = facts_of_log(str(log), "--redact", *options)
    assert len(new.places) >= 38
    # The folder that the user named for the results is told on stdout; it lies beside the log here, not below it.
    assert new.leaked(out, *printed) == {}


def test_the_canaries_are_found_when_nothing_is_redacted(facts_of_log: Run, tmp_path: Path) -> None:
    new = Canaries()
    log = tmp_path / new("path of the log")
    log.write_bytes(log_with_personal_facts(new))
    out, *printed = facts_of_log(str(log))
    # A comment, a local path and all others stand in the tables: the search would see a leak.
    assert set(new.places.values()) - set(new.leaked(out, *printed)) == set()


def test_what_plans_are_read_for_stays_readable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(log_with_personal_facts(Canaries()))
    facts = read_event_logs(log, redact=True)
    plans = facts.plan_nodes["simple_string"].to_list()
    assert "Exchange hashpartitioning(city#5, 200), ENSURE_REQUIREMENTS, [plan_id=12]" in plans
    assert any(text.startswith("Filter (((isnotnull(city#5) AND (city#5 = h:") for text in plans)
    assert any("myudf(city#5) AS u#11" in text for text in plans)
    assert any("functions=[sum(price#8), count(1)])" in text for text in plans)
    assert any("EqualTo(city,h:" in text and "struct<city:string,zip:bigint>" in text for text in plans)
    names = facts.plan_nodes["node_name"].to_list()
    assert {"Filter", "Exchange", "HashAggregate", "AdaptiveSparkPlan"} <= set(names)
    assert any(name.startswith("Scan JDBCRelation((select * from people where name = h:") for name in names)
    assert KEPT.items() <= dict(facts.environment.select("name", "value").iter_rows()).items()
    description = facts.sql_executions["description"][0]
    assert description.startswith("SELECT sum(price) FROM shop.orders h:")
    assert "java.lang.NumberFormatException" in "".join(facts.failures["message"].drop_nulls())
    assert any("Lost task 0.0 in stage 1.0 (TID 3) (h:" in text for text in facts.failures["message"].drop_nulls())


@pytest.mark.parametrize("path", ["tpch_sf0.1.zstd", "failing.zstd"])
def test_names_and_all_numbers_of_a_real_log_are_unchanged_by_redact(
    path: str, facts_of: Callable[[Path], EventLogFacts]
) -> None:
    facts, redacted = facts_of(LOGS / path), read_event_logs(LOGS / path, redact=True)
    for name in EventLogFacts.__dataclass_fields__:
        before, after = getattr(facts, name), getattr(redacted, name)
        if name in ("failures", "environment", "bad_lines", "logs"):
            assert before.height == after.height
            continue
        numbers = [column for column, dtype in before.schema.items() if dtype != pl.String]
        assert after.select(numbers).equals(before.select(numbers)), name
    columns = {"plan_nodes": "node_name", "node_metrics": "metric_name", "accumulators": "name"}
    for table, column in (columns | {"applications": "app_id"}).items():
        assert getattr(redacted, table)[column].to_list() == getattr(facts, table)[column].to_list(), column
    assert set(redacted.environment["name"]) == set(facts.environment["name"])
    assert redacted.stages["scopes"].to_list() == facts.stages["scopes"].to_list()
    readable = redacted.plan_nodes.filter(pl.col("simple_string").str.contains("h:", literal=True).not_())
    assert readable.height > 0.5 * redacted.plan_nodes.height


def test_equal_values_stay_equal_within_a_run_and_differ_between_runs() -> None:
    one, other = Redactor(strict=True), Redactor(strict=True)
    assert one.hash_value("ann") == one.hash_value("ann") != one.hash_value("bob")
    assert one.hash_value("ann") != other.hash_value("ann")
    keyed, again = (Redactor(strict=True, key=b"k" * 16) for _ in range(2))
    assert keyed.hash_value("ann") == again.hash_value("ann")


def test_a_path_given_as_a_url_loses_its_user_info_everywhere(facts_of_log: Run) -> None:
    import fsspec

    new = Canaries()
    name = f"memory://{new('user')}:{new('password')}@bucket/logs/app"
    store = fsspec.filesystem("memory")
    path = name.removeprefix("memory://")
    with store.open(path, "wb") as file:
        file.write(made.small(b"oops"))
    try:
        out, *printed = facts_of_log(name, "--json")
    finally:
        store.rm(path)
    assert new.leaked(out, *printed) == {}
    assert json.loads((out / "run.json").read_text())["inputs"][0]["path"] == "memory://bucket/logs/app"
    assert json.loads(printed[0])["logs"][0]["path"].endswith("@bucket/logs/app")


@pytest.mark.parametrize("name", ["memory://ann:{}@bucket/absent", "nosuch://ann:{}@bucket/x"])
def test_messages_about_a_url_do_not_repeat_its_user_info(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["eventlog", "facts", name.format(CANARY), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert CANARY not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3a://key:s3cret@bucket/x", f"s3a://{REDACTED}@bucket/x"),
        ("https://host:8080/a/b@c", "https://host:8080/a/b@c"),
        ("abfss://data@acct.dfs.core.windows.net/x", "abfss://data@acct.dfs.core.windows.net/x"),
        ("abfss://data:pw@acct.dfs.core.windows.net/x", f"abfss://{REDACTED}@acct.dfs.core.windows.net/x"),
        ("hdfs://nn:9000/data, see a@b.org", "hdfs://nn:9000/data, see a@b.org"),
        ('{"password": "a b"}', f'{{"password": {REDACTED}}}'),
        ("{\\\"password\\\":\\\"a b\\\"}", f"{{\\\"password\\\":{REDACTED}}}"),
        ("https://x/?sig=abc&se=1", f"https://x/?sig={REDACTED}&se=1"),
        ("IDENTIFIED BY 'x y'", f"IDENTIFIED BY {REDACTED}"),
        ("AKIAABCDEFGHIJKLMNOP", REDACTED),
        ("struct<token:string,n:int>", "struct<token:string,n:int>"),
        ("max_tokens 5 of a tokenizer", "max_tokens 5 of a tokenizer"),
    ],
)  # fmt: skip
def test_scrub_takes_out_the_secret_and_leaves_the_rest(text: str, expected: str) -> None:
    assert remove_secrets(text) == expected


def test_a_property_is_hidden_by_its_name_or_by_its_value_as_spark_does() -> None:
    assert remove_property_secrets("spark.my.Token", "x") == REDACTED
    assert remove_property_secrets("spark.x", "my password is y") == REDACTED
    assert remove_property_secrets("spark.x", "y") == "y"


def test_a_bad_line_shows_80_characters_and_of_what_may_hold_a_secret_only_the_event() -> None:
    event = b'{"Event":"SparkListenerTaskEnd","Stage ID":oops' + b"x" * 200
    assert format_bad_line(event) == event.decode()[:LINE_CHARS]
    assert format_bad_line(b'{"Event":"SparkListenerJobStart","a":"token"') == (
        f'{{"Event":"SparkListenerJobStart… ({REDACTED})'
    )
    assert format_bad_line(b'","rest of a value":1}') == f"… ({REDACTED})"
    assert format_bad_line(b"\x1b[31mred\x00\n") == "\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("cut", range(7960, 8060, 7))
def test_no_cut_of_a_long_text_parts_a_secret_from_what_tells_it(cut: int) -> None:
    text = "y" * (cut - 20) + " jdbc:mysql://ann:KANARIEKANARIE@db/x and on" + "z" * 9000
    for redactor in (Redactor(), Redactor(strict=True)):
        for method in (redactor.redact_text, redactor.redact_message, redactor.redact_plan, redactor.redact_label):
            assert "KANARIE" not in (method(text) or "")
    assert len(cut_text(text, 2000)) <= 8000


ADVERSARIAL = {
    "word": "a" * 200_000,
    "dotted": "a." * 100_000,
    "dashes": "a-" * 100_000,
    "slashes": "/" * 200_000,
    "schemes": "a://" * 50_000,
    "users": "//a:" * 50_000,
    "quotes": "'" * 200_001,
    "escapes": "'" + "\\" * 200_001,
    "double quotes": '"\\' * 100_000,
    "keys": "token" * 40_000,
    "spaces": "password" + " " * 200_000,
    "brackets": "f(" * 100_000,
    "aliases": "a AS " * 40_000,
    "hashes": "h:0123456789 " * 15_000,
    "digits": "1." * 100_000,
    "colons": "a:" * 100_000,
    "comments": "/*" * 100_000,
    "columns": "a#1" * 60_000,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_no_text_makes_a_pattern_run_away(name: str) -> None:
    """A pattern of quadratic cost would need minutes for these; the hang guard fails the test then."""
    text = "select " + ADVERSARIAL[name]
    assert format_bad_line(text.encode())
    assert remove_secrets(text) is not None
    assert remove_property_secrets("spark.x", text) is not None
    for redactor in (Redactor(), Redactor(strict=True)):
        redactor.learn_names("somebody")
        for method in (redactor.redact_text, redactor.redact_message, redactor.redact_plan, redactor.redact_label):
            assert method(text) is not None
        assert redactor.redact_property("spark.x", text) is not None
        assert redactor.find_column_words(["Filter"], [text]) is not None


def test_what_is_missing_stays_readable_and_its_names_are_hashed(tmp_path: Path) -> None:
    lines = (LOGS / "small" / "three_queries").read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if b"StageCompleted" not in line and b"ExecutorAdded" not in line]
    (tmp_path / "log").write_bytes(b"".join(whole).replace(b'"Executor ID":"driver"', b'"Executor ID":"ann-pc"'))
    found = read_event_logs(tmp_path / "log", redact=True).completeness
    ends = found.filter(pl.col("kind") == "stage end")
    assert ends["subject"].to_list() == [f"stage {number}" for number in ends["stage_id"]]
    assert ends.height == 13
    (named,) = found.filter(pl.col("kind") == "executors")["subject"]
    assert named.startswith("executors h:")
    assert "ann" not in named
