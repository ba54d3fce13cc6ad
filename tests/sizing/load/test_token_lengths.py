"""Prompts as long as asked, by the served model's own tokenizer; nothing is downloaded."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.vllm_server import TEMPLATE_TOKENS, vllm_server
from workbench.core.errors import ConfigError, InputError, MissingToolError
from workbench.sizing.config import build_sweep_config
from workbench.sizing.load.request_plan import PROMPT_WORDS, count_tokens, find_tokenizer_file, load_tokenizer
from workbench.sizing.load.sweep_runner import build_prompts, run_sweep

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
TARGET: dict[str, Any] = {"url": "http://127.0.0.1:9", "protocol": "openai", "model": "m", "users": [1]}


def train(path: Path, kind: str) -> Path:
    """A tokenizer that was trained on some text: whole words are tokens, as in the models that people serve."""
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    text = [" ".join(PROMPT_WORDS[at:] + PROMPT_WORDS[:at]) for at in range(40)] * 3
    if kind == "byte level":
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer: Any = trainers.BpeTrainer(vocab_size=1200, special_tokens=["<s>"], show_progress=False)
    elif kind == "metaspace":
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=["<s>", "<unk>"], show_progress=False)
    elif kind == "word piece":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.Lowercase()
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=["[UNK]"], show_progress=False)
    else:
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=60, show_progress=False)
    made.train_from_iterator(text, trainer)
    made.save(str(path))
    return path


@pytest.mark.parametrize("kind", ["byte level", "metaspace", "word piece"])
def test_prompts_are_exactly_as_long_as_asked(kind: str, tmp_path: Path) -> None:
    path = train(tmp_path / "tokenizer.json", kind)
    for tokens, cv in ((1, 0.0), (7, 0.0), (400, 0.8)):
        config = build_sweep_config(**TARGET, tokenizer=str(path), input_tokens=tokens, input_cv=cv, unique_prefix=True)
        prompts, described = build_prompts(config)
        assert (described["exact"], described["checked"], described["max_error_tokens"]) == (64, 64, 0)
        texts = [text for _, text in itertools.islice(prompts.iterate_items(3, 1, 4), 300)]
        # Counted again here, with the tokenizer itself.
        counts = count_tokens(load_tokenizer(str(path)), texts)
        assert counts == [len(text.split(" ")) for text in texts]
        assert cv or set(counts) == {tokens}
        assert tokens == 1 or len(set(texts)) == len(texts)


def test_a_tokenizer_of_single_letters_cannot_give_exact_lengths(tmp_path: Path) -> None:
    path = train(tmp_path / "tokenizer.json", "letters")
    with pytest.raises(ConfigError, match="too few words"):
        build_prompts(build_sweep_config(**TARGET, tokenizer=str(path)))


def test_it_is_found_as_file_folder_and_name_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    for age, revision in ((100, "new"), (1000, "old")):
        folder = tmp_path / "hub" / "models--org--model" / "snapshots" / revision
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_text("{}")
        os.utime(folder / "tokenizer.json", (2e9 - age, 2e9 - age))
    newest = tmp_path / "hub" / "models--org--model" / "snapshots" / "new" / "tokenizer.json"
    assert find_tokenizer_file("org/model") == newest
    assert find_tokenizer_file(str(newest)) == find_tokenizer_file(str(newest.parent)) == newest


@pytest.mark.parametrize("name", ["org/other", "../no/such", "/no/such/file", "org/../model", "a\nb"])
def test_what_is_not_here_is_refused_and_never_fetched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(InputError, match="no such tokenizer here"):
        load_tokenizer(name)


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"model": {"type": "BPE"}}', "[]"])
def test_a_file_that_is_no_tokenizer_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError, match="not a tokenizer"):
        load_tokenizer(str(tmp_path))


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingToolError, match="tokenizers"):
        load_tokenizer("x")


def test_the_sweep_says_what_the_server_counts_on_top(tmp_path: Path) -> None:
    path = train(tmp_path / "tokenizer.json", "byte level")
    sizes = {"least_samples": 30, "most_samples": 30, "min_step_s": 0, "processes": 0}
    with vllm_server(time_s=0.005) as (url, _):
        found = run_sweep(**TARGET | {"url": url}, tokenizer=str(path), input_tokens=50, **sizes)
    assert set(found.requests["input_tokens"]) == {50 + TEMPLATE_TOKENS}
    assert "prompt lengths by the tokenizer: 64 of 64 exact" in found.notes
    assert f"the server counts +{TEMPLATE_TOKENS} tokens a prompt (its chat template)" in found.notes


def test_prompts_of_the_user_are_counted(tmp_path: Path) -> None:
    path = train(tmp_path / "tokenizer.json", "word piece")
    rows = [json.dumps({"prompt": "the of and " * n}) for n in (1, 2, 5)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(rows))
    config = build_sweep_config(**TARGET, tokenizer=str(path), prompts=tmp_path / "prompts.jsonl")
    described = build_prompts(config)[1]
    assert (described["median_tokens"], described["max_tokens"]) == (6, 15)
