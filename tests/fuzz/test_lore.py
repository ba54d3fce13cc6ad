"""What the LORE area reads of dumps and bundles from anybody: nothing of them may run, lead out, or grow."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.fuzz.fuzzing import fuzz, harmless, scratch
from tests.fuzz.mutations import HOSTILE_TEXTS, damaged, json_documents
from tests.lore.small_dump import contents, java_stream, sidecar_of, write_dump
from workbench.lore.dump_reader import dump_inspection, meta_files
from workbench.lore.dump_reader import java_stream as dump_reader_java_stream
from workbench.lore.dumps import bundles, dump_folder, inline_dump, operator_selection
from workbench.lore.trust import trust_check

pytestmark = pytest.mark.slow

METAS = Path(__file__).parents[1] / "lore" / "inspection" / "samples"
STREAMS = [path.read_bytes() for path in sorted(METAS.rglob("*.meta")) + sorted(METAS.glob("*.bin"))]
STREAMS.append(java_stream("org.apache.spark.sql.execution.FilterExec", "java.lang.Runtime"))
SIDECAR = json.loads(sidecar_of(contents()).model_dump_json())
RECORD = {
    "tap": "loreId-5/input-0", "partition": 2, "attempt": 9, "exhausted": True, "files": ["p2-a9-1-0.parquet"],
    "batch_rows": [7], "bytes": 901, "rows": 7, "hash_sum": "12", "hash_xor": 3, "ordered_sum": "4",
}  # fmt: skip
MEMBERS = [
    "loreId-3/plan.json", "loreId-3/plan.meta", "README.md", "../escaped", "/etc/escaped", "loreId-3/../../escaped",
    "C:escaped", "loreId-3\\..\\escaped", "loreId-3/NUL", "loreId-3/a\x00b", "loreId-3/" + "a" * 300, "a/" * 20 + "b",
    "loreId-3/input-0/rdd.meta", "loreId-3/plan.JSON", "\u202eloreId-3", "loreId-3/input-0/partition-0/batch-0.parquet",
]  # fmt: skip


@fuzz(250, content=damaged(STREAMS))
def test_a_damaged_java_stream_is_read_or_refused(content: bytes) -> None:
    harmless(lambda: dump_reader_java_stream.read_values(content))
    harmless(lambda: dump_reader_java_stream.list_class_names(content))


@fuzz(150, content=st.one_of(damaged(STREAMS), json_documents([{"numPartitions": 3}, {"numBatches": 2}])))
def test_damaged_metas_are_read_or_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "a.meta"
        path.write_bytes(content)
        for read in (meta_files.read_rdd_meta, meta_files.read_partition_meta, meta_files.read_plan_meta):
            harmless(lambda read=read: read(path))  # type: ignore[misc]


@fuzz(150, content=json_documents([SIDECAR]))
def test_a_damaged_plan_json_lets_nothing_through(content: bytes) -> None:
    with scratch() as place:
        folder = write_dump(place / "loreId-3", sign=False)
        (folder / "plan.json").write_bytes(content)
        harmless(lambda: dump_folder.read_sidecar(folder))
        told: list[str] = []
        found = harmless(lambda: trust_check.check_trust(folder, trust=True, report=told.append))
        # Only a document that still tells these files exactly is let through.
        assert found is None or {name: one.sha256 for name, one in found.files.items()} == {
            name: one["sha256"] for name, one in SIDECAR["files"].items()
        }
        assert harmless(lambda: trust_check.check_trust(folder)) is None, (
            "nothing without a signature is let through untrusted"
        )


@fuzz(60, name=st.sampled_from(sorted(contents())), data=st.data())
def test_a_damaged_file_of_a_dump_is_noticed_before_it_is_loaded(name: str, data: st.DataObject) -> None:
    with scratch() as place:
        folder = write_dump(place / "loreId-3", sign=False)
        before = (folder / name).read_bytes()
        after = data.draw(damaged([before]))
        (folder / name).write_bytes(after)
        found = harmless(lambda: trust_check.check_trust(folder, trust=True, report=lambda text: None))
        assert (found is None) == (after != before)
        harmless(lambda: dump_inspection.inspect_dumps(folder))
        harmless(lambda: dump_folder.read_layout(folder))


def _zip(members: list[tuple[str, bytes, int]], compression: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content, attributes in members:
            info = zipfile.ZipInfo("x", (2026, 1, 1, 0, 0, 0))
            info.filename = name
            info.external_attr = attributes << 16
            info.compress_type = compression
            archive.writestr(info, content)
    return out.getvalue()


members = st.tuples(
    st.one_of(st.sampled_from(MEMBERS), st.text(max_size=12)),
    st.sampled_from([b"", b"a", b"0" * 100_000, b"../../escaped"]),
    # A file, a link, a device, a pipe, a folder.
    st.sampled_from([0o100644, 0o120777, 0o060666, 0o010666, 0o040755]),
)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@fuzz(200, given=st.lists(members, max_size=5), compression=st.sampled_from([0, 8, 12, 14]), data=st.data())
def test_no_bundle_writes_elsewhere_or_leaves_a_link(
    given: list[tuple[str, bytes, int]], compression: int, data: st.DataObject
) -> None:
    with scratch() as place:
        path = place / "bundle.zip"
        path.write_bytes(data.draw(damaged([_zip(given, compression)], most=2)))
        target = place / "opened"
        harmless(lambda: bundles.open_bundle(path, target, max_bytes=1 << 20), writes=target)
        assert not [found for found in place.rglob("*") if found.is_symlink()]
        assert sorted(found.name for found in place.iterdir() if found.name != "opened") == ["bundle.zip"]


@fuzz(40, data=st.data())
def test_a_damaged_real_bundle_is_opened_whole_or_not_at_all(data: st.DataObject) -> None:
    with scratch() as place:
        folder = write_dump(place / "made" / "loreId-3")
        bundles.write_bundle(folder, place / "good.zip")
        path = place / "bad.zip"
        path.write_bytes(data.draw(damaged([(place / "good.zip").read_bytes()], most=2)))
        target = place / "opened"
        found = harmless(lambda: bundles.open_bundle(path, target, max_bytes=1 << 20), writes=target)
        if found is not None:
            assert harmless(lambda: trust_check.check_trust(found, trust=True, report=lambda text: None)) or True


texts = st.one_of(
    st.text(alphabet="0123456789[]*-, ٣²", max_size=30), st.text(max_size=10), st.sampled_from(HOSTILE_TEXTS)
)


@fuzz(300, text=texts)
def test_ids_to_dump_are_told_as_they_were_read(text: str) -> None:
    found = harmless(lambda: operator_selection.parse_selection(text))
    if found:
        assert operator_selection.parse_selection(operator_selection.format_selection(found)) == found


@fuzz(100, content=json_documents([RECORD]))
def test_a_record_of_the_hooks_is_read_or_an_error_that_is_awaited(content: bytes) -> None:
    """These lines are written by our own jar within the same process; damage must only never pass for a record."""
    try:
        found: Any = harmless(lambda: inline_dump.parse_record(content.decode("utf-8", "replace")))
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    assert found is None or isinstance(found.lore_id, int)
