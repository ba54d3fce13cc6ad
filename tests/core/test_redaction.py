"""Secrets are cut out in every spelling that an output is likely to hold."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core import redaction

SECRET = 'p"s/w+<r>d\\ é'


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        repr(SECRET)[1:-1],
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        html.escape(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_cut_out_in_each_spelling(spelled: str) -> None:
    assert redaction.redact_value(f"before {spelled} after", [SECRET]) in (
        "before [redacted] after",
        'before "[redacted]" after',
    )


def test_lists_and_mappings_are_cleaned_to_the_bottom_keys_too() -> None:
    assert redaction.redact_value({"a": [{"s3cret": ["x s3cret", 1, None]}]}, ["s3cret"]) == {
        "a": [{"[redacted]": ["x [redacted]", 1, None]}]
    }


def test_a_longer_secret_that_holds_a_shorter_one_leaves_no_rest() -> None:
    assert redaction.redact_value("key abcd-efgh", ["abcd", "abcd-efgh"]) == "key [redacted]"


def test_without_secrets_nothing_is_changed() -> None:
    value = {"a": ["b"]}
    assert redaction.redact_value(value, []) is value


def test_a_secret_with_a_line_end_is_cut_out_without_it_too() -> None:
    assert redaction.redact_value("key s3cret.", ["s3cret\n"]) == "key [redacted]."


@given(st.text(min_size=redaction.MIN_SECRET_LENGTH), st.text(), st.text())
def test_no_text_keeps_the_secret(secret: str, before: str, after: str) -> None:
    cleaned = redaction.redact_value(before + secret + after, [secret])
    assert secret not in cleaned.replace(redaction.REDACTION_MARK, "\0")


@pytest.mark.parametrize("name", ["secret", "client_secret", "API_KEY", "hf_token", "password"])
def test_names_that_give_a_secret_away(name: str) -> None:
    assert redaction.is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokens", "secretary", "key", "api_key_env", "passwords_file"])
def test_names_that_only_sound_alike(name: str) -> None:
    assert not redaction.is_secret_name(name)


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "fs.s3a.session.token",
        "fs.azure.account.key.logs.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret",
        "spark.ssl.keyPassword",
        "javax.jdo.option.ConnectionPassword",
        "spark.sql.catalog.lake.credential",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "google.cloud.auth.service.account.private.key",
    ],
)
def test_keys_of_settings_that_give_a_secret_away(key: str) -> None:
    assert redaction.find_secret_settings("confs", ["a=b", f" {key} = Zq7"]) == [key]
    assert redaction.find_secret_settings("confs", f"{key}=${{env.S3_KEY}}") == []
    assert redaction.find_secret_settings("confs", f"{key}=") == []
    assert redaction.find_secret_settings("header_env", [f"{key}=SERVICE_KEY"]) == [], "what it names is a variable"


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.hadoop.security.credential.provider.path",
        "spark.security.credentials.hive.enabled",
        "spark.authenticate.secretBitLength",
        "spark.sql.parser.maxTokens",
        "spark.sql.shuffle.partitions",
        "max_tokens",
    ],
)
def test_keys_of_settings_that_only_sound_alike(key: str) -> None:
    assert redaction.find_secret_settings("confs", [f"{key}=3"]) == []
