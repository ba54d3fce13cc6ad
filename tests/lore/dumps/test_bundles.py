"""A dump as one zip: the same bytes each time, and hostile ones stopped before they write or load anything."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.lore.small_dump import contents, sidecar_of, write_dump
from workbench.cli.app import app
from workbench.core.errors import ConfigError, InputError
from workbench.lore.dumps.bundles import TEXT_FILES, format_readme, format_requirements, open_bundle, write_bundle
from workbench.lore.dumps.dump_folder import Versions
from workbench.lore.trust import safe_archive, trust_check

pytestmark = pytest.mark.usefixtures("config_home")

Entry = tuple[zipfile.ZipInfo | str, bytes]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "loreId-3")


@pytest.fixture
def bundle(dump: Path, tmp_path: Path) -> Path:
    return write_bundle(dump, tmp_path / "made.zip").path


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def zipped(path: Path, *entries: Entry, like: Path | None = None, packing: int = zipfile.ZIP_STORED) -> Path:
    """A zip of a good bundle's files, then these."""
    with zipfile.ZipFile(path, "w", packing) as made:
        if like is not None:
            with zipfile.ZipFile(like) as good:
                for info in good.infolist():
                    made.writestr(info.filename, good.read(info))
        for name, data in entries:
            made.writestr(name, data)
    return path


def refusal(path: Path, tmp_path: Path, **given: Any) -> InputError:
    """The error of opening it; nothing is left behind, in the folder or beside it."""
    target = tmp_path / "opened" / "here"
    with pytest.raises(InputError) as error:
        open_bundle(path, target, **given)
    assert list((tmp_path / "opened").rglob("*")) == ([target] if target.exists() else [])
    assert error.value.exit_code == 2
    return error.value


def test_a_bundle_holds_the_dump_with_checksums_requirements_and_a_readme(dump: Path, bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as made:
        names = made.namelist()
        assert made.testzip() is None
        assert {info.compress_type for info in made.infolist()} == {zipfile.ZIP_STORED}
        sums = made.read("SHA256SUMS").decode()
        listed = {name: made.read(name) for name in names}
    assert names == sorted({f"loreId-3/{name}" for name in tree(dump)} | TEXT_FILES)
    told = dict(reversed(line.split("  ")) for line in sums.splitlines())
    assert told == {name: hashlib.sha256(data).hexdigest() for name, data in listed.items() if name not in TEXT_FILES}


def test_the_same_dump_gives_the_same_bytes(dump: Path, tmp_path: Path, bundle: Path) -> None:
    again = write_dump(tmp_path / "copy")
    for path in again.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert write_bundle(again, tmp_path / "other name.zip").path.read_bytes() == bundle.read_bytes()


def test_what_is_opened_is_the_dump_and_for_this_user_alone(dump: Path, bundle: Path, tmp_path: Path) -> None:
    opened = open_bundle(bundle, tmp_path / "a" / "b")
    assert opened == tmp_path / "a" / "b" / "loreId-3"
    assert tree(opened) == tree(dump)
    assert trust_check.check_trust(opened) == trust_check.check_trust(dump)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "a" / "b", *(tmp_path / "a" / "b").rglob("*")]}
    assert modes == {0o700, 0o600}


def test_a_bundle_that_somebody_packed_again_opens_too(bundle: Path, tmp_path: Path) -> None:
    again = zipped(tmp_path / "again.zip", ("loreId-3/", b""), like=bundle, packing=zipfile.ZIP_DEFLATED)
    assert trust_check.check_trust(open_bundle(again, tmp_path / "x")).lore_id == 3


def test_a_colleague_must_say_that_the_maker_is_known(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "colleague"))
    opened = open_bundle(bundle, tmp_path / "x")
    with pytest.raises(InputError, match="not signed by you"):
        trust_check.check_trust(opened)
    told: list[str] = []
    assert trust_check.check_trust(opened, trust=True, report=told.append).lore_id == 3
    assert told


NAMES = {
    "it is an absolute path": ("/loreId-3/a", "//host/share"),
    "it leaves the folder": ("../evil", "loreId-3/../../evil", "loreId-3/input-0/.."),
    "it has a drive letter": ("C:/evil", "c:evil"),
    "it has a backslash": ("loreId-3\\..\\evil", "loreId-3/a\\b"),
    "it is the name of a device": ("loreId-3/CON", "loreId-3/nul.parquet", "loreId-3/COM1/a", "loreId-3/lpt9.x.y"),
    "it is not made of letters, digits, dots and dashes": tuple(
        f"loreId-3/{name}" for name in ("a//b", "./a", "a:stream", ".hidden", "a.", "a ", "a\x1b[2J", "\u202eexe")
    ),
    "it is too long": ("loreId-3/" + "a" * 300, "loreId-3/" + "a/" * 20 + "a"),
    "it does not belong in a bundle": ("README.md/x", "evil.sh", "plan.json", "loreId-x/plan.json"),
    "it is in the archive twice": ("loreId-3/plan.json", "LOREID-3/Plan.json", "readme.MD"),
}


@pytest.mark.parametrize(
    ("name", "what"),
    [(name, what) for what, names in NAMES.items() for name in names],
    ids=lambda text: ascii(text[:24]),
)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_name_that_no_bundle_has_is_refused_before_anything_is_written(
    name: str, what: str, bundle: Path, tmp_path: Path
) -> None:
    error = refusal(zipped(tmp_path / "bad.zip", (name, b"evil"), like=bundle), tmp_path)
    assert error.what == f"a file that may not be in a bundle: {what}"
    assert str(error.facts["found"]).isascii()
    assert "\x1b" not in str(error)
    assert not (tmp_path / "evil").exists()


def marked(name: str, mode: int = stat.S_IFREG | 0o644, **changed: Any) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    for key, value in changed.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ((marked("loreId-3/link", stat.S_IFLNK | 0o777), b"/etc/passwd"), "it is a link"),
        ((marked("loreId-3/plan.link", stat.S_IFLNK), b"plan.json"), "it is a link"),
        ((marked("loreId-3/pipe", stat.S_IFIFO | 0o644), b""), "it is no file"),
        ((marked("loreId-3/disk", stat.S_IFBLK | 0o644), b""), "it is no file"),
        ((marked("loreId-3/folder", stat.S_IFDIR | 0o755), b""), "it is no file"),
        ((marked("loreId-3/folder/", stat.S_IFREG | 0o644), b""), "it is no file"),
        ((marked("loreId-3/x", compress_type=zipfile.ZIP_BZIP2), b"x"), "it has another compression than bundles"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].filename,
)
def test_what_is_no_plain_file_is_refused(entry: Entry, what: str, bundle: Path, tmp_path: Path) -> None:
    error = refusal(zipped(tmp_path / "bad.zip", entry, like=bundle), tmp_path)
    assert error.what == f"a file that may not be in a bundle: {what}"


def test_a_name_with_a_nul_and_an_encrypted_file_are_refused(bundle: Path, tmp_path: Path) -> None:
    made = zipped(tmp_path / "bad.zip", ("loreId-3/extraZevil", b"x"), like=bundle)
    raw = bytearray(made.read_bytes())
    made.write_bytes(raw.replace(b"extraZevil", b"extra\0evil"))
    assert refusal(made, tmp_path).what == "a file that may not be in a bundle: it has a NUL"
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    made.write_bytes(raw)
    assert refusal(made, tmp_path).what == "a file that may not be in a bundle: it is encrypted"


def test_a_bomb_is_told_by_its_ratio(bundle: Path, tmp_path: Path) -> None:
    bomb = ("loreId-3/input-0/partition-0/batch-9.parquet", bytes(40 << 20))
    error = refusal(zipped(tmp_path / "bomb.zip", bomb, like=bundle, packing=zipfile.ZIP_DEFLATED), tmp_path)
    assert error.what == "a decompression bomb"
    assert "batch-9.parquet: 41,943,040 bytes from" in str(error)


def test_many_files_that_are_small_each_are_stopped_by_the_cap(bundle: Path, tmp_path: Path) -> None:
    entries = [(f"loreId-3/output/part-{number}", bytes(1 << 20)) for number in range(5)]
    made = zipped(tmp_path / "big.zip", *entries, like=bundle, packing=zipfile.ZIP_DEFLATED)
    error = refusal(made, tmp_path, max_bytes=4 << 20)
    assert error.what == "the archive is too large"
    assert "loreId-3/output/part-0 1,048,576" in str(error)
    assert "--max-bytes" in str(error)


def test_a_bomb_that_lies_about_its_size_is_stopped_while_it_is_read(bundle: Path, tmp_path: Path) -> None:
    made = zipped(tmp_path / "bad.zip", ("loreId-3/x", bytes(40 << 20)), like=bundle, packing=zipfile.ZIP_DEFLATED)
    raw = bytearray(made.read_bytes())
    # Its size in its own head and in the list at the end, both to 100 bytes.
    for at in (raw.rindex(b"PK\x03\x04") + 22, raw.rindex(b"PK\x01\x02") + 24):
        assert struct.unpack_from("<L", raw, at) == (40 << 20,)
        struct.pack_into("<L", raw, at, 100)
    made.write_bytes(raw)
    error = refusal(made, tmp_path)
    assert "loreId-3/x" in str(error)
    assert error.what in ("a decompression bomb", "a file of the archive is damaged")


def test_the_cap_counts_what_is_read_whatever_was_declared(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = zipped(tmp_path / "bad.zip", ("loreId-3/x", b"x" * 100), like=bundle)
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, n=-1: b"y" * 4096)
    assert refusal(made, tmp_path).what == "a decompression bomb"


def test_too_many_files_are_refused_before_their_list_is_read(bundle: Path, tmp_path: Path) -> None:
    for at, form, value in ((-12, "<H", 0xFFFF), (-10, "<L", safe_archive.MAX_DIRECTORY_BYTES + 1)):
        raw = bytearray(bundle.read_bytes())
        if form == "<H":
            # As many as a Zip64 end tells: its record, its place, then the plain end.
            record = struct.pack("<LQHHLLQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 10**9, 10**9, 46, 0)
            raw[-22:-22] = record + struct.pack("<LLQL", 0x07064B50, 0, len(raw) - 22, 1)
        struct.pack_into(form, raw, len(raw) + at, value)
        (tmp_path / "bad.zip").write_bytes(raw)
        assert refusal(tmp_path / "bad.zip", tmp_path).what == "the archive has too many files"


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"#!/bin/sh\n" + raw,
        lambda raw: raw + b"tail",
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"",
        lambda raw: b"PK\x05\x06" + bytes(18),
        lambda raw: raw[:-2] + b"\x04\x00note",
    ],
    ids=["script before", "bytes after", "cut by one", "half", "empty", "an empty zip", "a comment"],
)
def test_what_is_not_plainly_a_zip_is_refused(change: Callable[[bytes], bytes], bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(change(bundle.read_bytes()))
    refusal(tmp_path / "bad.zip", tmp_path)


def test_any_flipped_byte_of_the_dumps_files_is_refused_naming_the_file(bundle: Path, tmp_path: Path) -> None:
    raw = bundle.read_bytes()
    with zipfile.ZipFile(bundle) as made:
        infos = {info.filename: info for info in made.infolist() if info.filename not in TEXT_FILES}
    for name, info in infos.items():
        start = info.header_offset + 30 + len(name)
        bad = bytearray(raw)
        bad[start + info.file_size // 2] ^= 0x10
        (tmp_path / "bad.zip").write_bytes(bad)
        error = refusal(tmp_path / "bad.zip", tmp_path)
        assert error.what == "a file of the archive is damaged"
        assert name in str(error)


def test_a_bundle_of_two_dumps_or_of_none_and_one_that_is_not_there_are_refused(bundle: Path, tmp_path: Path) -> None:
    two = zipped(tmp_path / "two.zip", ("loreId-4/plan.json", b"{}"), like=bundle)
    for number, path in enumerate((two, zipped(tmp_path / "none.zip", ("README.md", b"hello")))):
        with pytest.raises(InputError, match="a bundle holds one dump"):
            open_bundle(path, tmp_path / f"x{number}")
    with pytest.raises(InputError, match="no such bundle"):
        open_bundle(tmp_path / "absent.zip", tmp_path / "x")


def test_a_folder_with_something_in_it_is_not_unpacked_into(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine").write_text("keep")
    with pytest.raises(ConfigError, match="folder to unpack into is not empty"):
        open_bundle(bundle, tmp_path / "x")
    assert tree(tmp_path / "x") == {"mine": b"keep"}


def test_a_dump_past_the_cap_names_its_biggest_files_and_writes_nothing(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        write_bundle(dump, tmp_path / "a.zip", max_bytes=100)
    assert error.value.what == "the bundle would be too large"
    assert re.search(r"the biggest files: plan\.meta \d+ bytes, ", str(error.value))
    assert "--max-bytes" in str(error.value)
    assert not (tmp_path / "a.zip").exists()


def test_a_dump_that_does_not_hold_is_not_bundled(dump: Path, tmp_path: Path) -> None:
    (dump / "plan.meta").write_bytes(b"changed")
    with pytest.raises(InputError):
        write_bundle(dump, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_nothing_is_overwritten_and_no_bundle_lies_in_its_dump(dump: Path, bundle: Path) -> None:
    before = bundle.read_bytes()
    with pytest.raises(ConfigError, match="the file exists"):
        write_bundle(dump, bundle)
    assert bundle.read_bytes() == before
    with pytest.raises(ConfigError, match="in its own dump"):
        write_bundle(dump, dump / "input-0" / "a.zip")
    assert trust_check.check_trust(dump).lore_id == 3


def test_the_default_name_is_of_the_operator(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_bundle(dump).path == Path("loreId-3.zip")
    assert (tmp_path / "loreId-3.zip").is_file()


def test_requirements_are_exact() -> None:
    text = format_requirements(sidecar_of({}).versions)
    assert text.splitlines()[1:] == ["pyarrow==17.0.0", "pyspark==3.5.9"]
    assert "Python 3.11.2" in text.splitlines()[0]


@pytest.mark.parametrize("version", ["3.5\n--index-url x", "", "3.5 ; x", "-e .", "3.5\u2028x", "1" * 80])
def test_a_version_that_is_none_cannot_become_a_line_for_the_installer(version: str) -> None:
    for field in ("spark", "python", "pyarrow"):
        versions = sidecar_of({}).versions.model_copy(update={field: version})
        with pytest.raises(InputError, match="not a version"):
            format_requirements(Versions(**versions.model_dump()))


def test_the_readme_has_one_command_and_texts_of_the_dump_stay_texts() -> None:
    text = format_readme(
        sidecar_of(contents(), operator_text="Filter `a`\n\n# <script>alert(1)</script>", masked="a: hash")
    )
    assert text.count("    workbench lore replay loreId-3.zip\n") == 1
    assert "<script>" not in text
    assert [line for line in text.splitlines() if line.startswith("#")] == [text.splitlines()[0]]
    assert "Masked: a: hash." in text
    assert "It has no Python functions." in text
    assert "udf_x" in format_readme(sidecar_of({}, python_functions=["udf_x"]))


def test_the_command_writes_the_zip_and_says_what_is_in_it(dump: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "out.zip", ["lore", "bundle", str(dump), "--out"]
    result = CliRunner().invoke(app, [*words, str(out)])
    assert result.exit_code == 0, result.output
    assert "loreId 3, Filter: 6 files" in result.output
    assert "4 rows of its inputs: original values, nothing is masked" in result.output
    assert hashlib.sha256(out.read_bytes()).hexdigest() in result.output
    found = json.loads(CliRunner().invoke(app, [*words, str(tmp_path / "json.zip"), "--json"]).stdout)
    told = {"path": str(tmp_path / "json.zip"), "lore_id": 3, "operator": "Filter", "n_files": 6, "n_rows": 4}
    assert found == found | told
    assert found["n_bytes"] == sum(len(data) for data in contents().values())


@pytest.mark.parametrize("options", [["--max-bytes", "1k", "--max-bytes", "7"], ["--max-bytes", "lots"]])
def test_the_command_refuses_with_a_config_error(dump: Path, tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(app, ["lore", "bundle", str(dump), "--out", str(tmp_path / "o.zip"), *options])
    assert isinstance(result.exception, ConfigError)
    assert list(tmp_path.glob("*.zip")) == []
