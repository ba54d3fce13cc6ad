"""Files of vulnerabilities: OSV records and reports of pip-audit, and what is neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import InputError
from workbench.indicators.recommendation import vulnerabilities as v


def osv(**changes: Any) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": "1.26.5"}, {"introduced": "2.0.0"}, {"last_affected": "2.0.2"}]
    affected = {"package": {"ecosystem": "PyPI", "name": "NumPy"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    record = {"id": "PYSEC-2026-1", "summary": "reads beyond the end", "affected": [affected]}
    return {**record, **changes}


def written(folder: Path, content: object) -> Path:
    path = folder / "found.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("version", "hit"),
    [
        ("1.0", True), ("1.26.4", True), ("1.26.5", False), ("1.27", False), ("2.0.0", True), ("2.0.2", True),
        ("2.0.2.post1", False), ("2.1", False), ("not a version", False),
        # A build is affected as its public version is.
        ("2.0.2+cu121", True), ("2.0.2+cpu", True), ("1.26.4+cpu", True), ("1.26.5+cpu", False), ("2.0.3+cpu", False),
    ],
)  # fmt: skip
def test_ranges_begin_where_introduced_and_end_before_fixed_or_with_the_last_affected(
    tmp_path: Path, version: str, hit: bool
) -> None:
    record = osv()
    for _ in ("in order", "turned round"):
        known = v.read_vulnerabilities(written(tmp_path, [record]))
        assert [one[:2] for one in known.find_affecting({"numpy": version})] == ([("numpy", version)] if hit else [])
        record["affected"][0]["ranges"][0]["events"].reverse()


def test_names_are_compared_as_the_index_does(tmp_path: Path) -> None:
    record = osv()
    record["affected"][0]["package"]["name"] = "Typing_Extensions"
    assert list(v.read_vulnerabilities(written(tmp_path, [record])).find_affecting({"typing-extensions": "1.0"}))


def test_one_record_an_array_and_one_a_line_are_the_same(tmp_path: Path) -> None:
    single = v.read_vulnerabilities(written(tmp_path, osv()))
    array = v.read_vulnerabilities(written(tmp_path, [osv()]))
    lines = json.dumps(osv()) + "\n\n" + json.dumps(osv(id="PYSEC-2026-2")) + "\n"
    both = v.read_vulnerabilities(written(tmp_path, lines))
    assert single == array
    assert [one.advisory for _, _, one in both.find_affecting({"numpy": "1.0"})] == ["PYSEC-2026-1", "PYSEC-2026-2"]


def test_listed_versions_are_affected_also_where_ranges_are_of_commits(tmp_path: Path) -> None:
    record = osv()
    affected = {"package": {"ecosystem": "PyPI", "name": "numpy"}, "versions": ["1.0"]}
    affected["ranges"] = [{"type": "GIT", "events": [{"introduced": "0"}]}]
    known = v.read_vulnerabilities(written(tmp_path, [{**record, "affected": [affected]}]))
    assert len(list(known.find_affecting({"numpy": "1.0.0"}))) == 1
    assert not list(known.find_affecting({"numpy": "1.1"}))


def test_a_build_is_affected_where_its_public_version_is_listed_or_was_found(tmp_path: Path) -> None:
    listed = v.Vulnerability("PYSEC-1", versions=frozenset({"2.1.0", "2.2.0+cpu"}))
    builds = ("2.1.0+cpu", "2.1.0+cu121", "2.2.0+cpu", "2.2.0+cu121", "2.2.0")
    assert [listed.affects_version(one) for one in builds] == [True, True, True, False, False]
    entry = {"name": "torch", "version": "2.1.0+cpu", "vulns": [{"id": "PYSEC-2"}]}
    known = v.read_vulnerabilities(written(tmp_path, {"dependencies": [entry]}))
    builds = ("2.1.0+cpu", "2.1.0+cu121", "2.1.0", "2.1.1+cpu")
    assert [len(list(known.find_affecting({"torch": one}))) for one in builds] == [1, 1, 1, 0]


def test_a_range_that_ends_in_a_build_is_taken_as_it_stands() -> None:
    mended = v.Vulnerability("PYSEC-1", ranges=(("2.0", "2.1.0+patched.1", None),))
    assert [mended.affects_version(one) for one in ("2.1.0", "2.1.0+patched.1", "2.0+cpu")] == [True, False, True]


def test_withdrawn_records_and_other_ecosystems_do_not_count(tmp_path: Path) -> None:
    other = osv()
    other["affected"][0]["package"]["ecosystem"] = "Debian"
    known = v.read_vulnerabilities(written(tmp_path, [osv(withdrawn="2026-01-01T00:00:00Z"), other]))
    assert not list(known.find_affecting({"numpy": "1.0"}))


def test_the_link_is_that_of_the_advisory_and_only_an_address(tmp_path: Path) -> None:
    references = [{"type": "WEB", "url": "https://a.example"}, {"type": "ADVISORY", "url": "https://b.example/1"}]
    bad = [{"type": "ADVISORY", "url": "javascript:alert(1)"}]
    first = v.read_vulnerabilities(written(tmp_path, [osv(references=references)]))
    second = v.read_vulnerabilities(written(tmp_path, [osv(references=bad)]))
    assert next(first.find_affecting({"numpy": "1.0"}))[2].link == "https://b.example/1"
    told = next(second.find_affecting({"numpy": "1.0"}))[2]
    assert told.link == "https://osv.dev/vulnerability/PYSEC-2026-1"
    assert told.version_range == "<1.26.5 or >=2.0.0,<=2.0.2", "spelled as a requirement"


AUDIT = {
    "dependencies": [
        {"name": "numpy", "version": "1.24.4", "vulns": [{"id": "PYSEC-9", "fix_versions": ["1.25"]}]},
        {"name": "numpy", "version": "2.2.6", "vulns": []},
        {"name": "local", "skip_reason": "not on the index"},
    ],
    "fixes": [],
}  # fmt: skip


@pytest.mark.parametrize("content", [AUDIT, AUDIT["dependencies"][:2]])
def test_a_report_of_pip_audit_knows_the_very_versions_it_looked_at(tmp_path: Path, content: object) -> None:
    known = v.read_vulnerabilities(written(tmp_path, content))
    told = [(one.advisory, one.version_range) for _, _, one in known.find_affecting({"numpy": "1.24.4"})]
    assert told == [("PYSEC-9", "==1.24.4")]
    assert not list(known.find_affecting({"numpy": "2.2.6"}))
    assert known.list_without_audit({"numpy": "2.2.6"}) == []
    assert known.list_without_audit({"numpy": "2.3.0", "local": "1.0"}) == ["local 1.0", "numpy 2.3.0"]


def test_osv_records_cannot_tell_who_was_looked_at(tmp_path: Path) -> None:
    known = v.read_vulnerabilities(written(tmp_path, [osv()]))
    assert known.list_without_audit({"pandas": "1.0"}) == []
    assert known.list_without_record({"pandas": "1.0", "NumPy": "1.0"}) == ["pandas"]
    assert v.read_vulnerabilities(written(tmp_path, AUDIT)).list_without_record({"pandas": "1.0"}) == []


LATEST = [{"type": "ECOSYSTEM", "events": [{"introduced": "latest"}]}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("  \n", "an empty file"),
        ("{", "neither JSON"),
        ("a\nb", "neither JSON"),
        ("[" * 100_000, "nested too deep"),
        ([1], "a list of objects"),
        ({"id": "A"}, "not a record of OSV"),
        ([osv(id="")], "without an id"),
        ([osv(id="a\x1b[31m")], "without an id"),
        ([osv(affected=["numpy"])], "a list of objects"),
        ([osv(affected=[osv()["affected"][0] | {"ranges": LATEST}])], "not a version"),
        ({"dependencies": {"numpy": "1"}}, "a list of objects"),
        ({"dependencies": [{"name": "n", "version": "1", "vulns": [{}]}]}, "without an id"),
    ],
)
def test_what_is_neither_is_refused(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        v.read_vulnerabilities(written(tmp_path, content))


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot read"):
        v.read_vulnerabilities(tmp_path / "nothing.json")
    monkeypatch.setattr(v, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="too large"):
        v.read_vulnerabilities(written(tmp_path, [osv()]))
