"""The grammar of addresses is compiled when it is used, and who uses it finds all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("rfc3987_syntax", reason="jsonschema takes it only where it is installed")


def said(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_commands_and_kernels_import_compiles_no_grammar() -> None:
    imports = "import workbench.charts, altair, nbformat, nbconvert, papermill, sys"
    assert said(f"{imports}; print('jsonschema' in sys.modules, 'lark' in sys.modules)") == "True False"


def test_a_schema_with_addresses_is_checked_all_the_same() -> None:
    code = """
import workbench, jsonschema
schema = jsonschema.Draft202012Validator
told = schema({"format": "iri"}, format_checker=schema.FORMAT_CHECKER)
print([told.is_valid(text) for text in ("http://example.org/\N{LATIN SMALL LETTER U WITH DIAERESIS}", "no address")])
"""
    assert said(code) == "[True, False]"


@pytest.mark.parametrize(
    "line",
    [
        "from rfc3987_syntax import parse, is_valid_syntax_iri as valid",
        "import rfc3987_syntax; valid = rfc3987_syntax.is_valid_syntax_iri",
        "import rfc3987_syntax.syntax_helpers as helpers; valid = helpers.is_valid_syntax_iri",
        "import jsonschema; from rfc3987_syntax import is_valid_syntax_iri as valid",
    ],
)
def test_who_imports_it_finds_all_of_it(line: str) -> None:
    assert said(f"import workbench; {line}; print(valid('http://example.org/'), valid('no address'))") == "True False"


def test_who_imported_it_before_keeps_it() -> None:
    assert said("import rfc3987_syntax as first; import workbench, rfc3987_syntax; print(rfc3987_syntax is first)") == (
        "True"
    )
