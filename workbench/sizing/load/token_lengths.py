"""Prompts of exact lengths by the served model's tokenizer; a tokenizer is read from disk and never downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError, InputError, MissingToolError
from workbench.sizing.load.request_plan import PROMPT_WORDS

MAX_TOKENIZER_BYTES = 256 << 20
MIN_WORDS = 30
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
FILE_NAME = "tokenizer.json"


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a file, of a folder with `tokenizer.json`, or of a name in the local Hugging Face cache."""
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise MissingToolError(
            "tokenizers is not installed", where="--tokenizer", do="pip install 'accelerated-workbench[tokens]'"
        ) from None
    path = find_tokenizer_file(name)
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise InputError("tokenizer is too large", where=path, allowed=f"up to {MAX_TOKENIZER_BYTES >> 20} MiB")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the package raises nothing narrower
        raise InputError("not a tokenizer", where=path, found=str(error)[:160], allowed=FILE_NAME) from None


def find_tokenizer_file(name: str) -> Path:
    """Path of `tokenizer.json`: a file, a folder that has one, or the newest snapshot of a name in the cache."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if (path / FILE_NAME).is_file():
        return path / FILE_NAME
    if NAME_PATTERN.fullmatch(name):
        home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
        files = sorted(folder.glob(f"snapshots/*/{FILE_NAME}"), key=lambda file: file.stat().st_mtime)
        if files:
            return files[-1]
    raise InputError(
        "no such tokenizer here",
        where="--tokenizer",
        found=name[:200],
        allowed=f"a {FILE_NAME}, its folder, or a model in the local cache",
        do="download it first: huggingface-cli download MODEL tokenizer.json",
    )


def count_tokens(tokenizer: Any, texts: Iterable[str]) -> list[int]:
    """Tokens of each text, without those that mark its beginning and end."""
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def choose_prompt_words(tokenizer: Any) -> list[str]:
    """Words that are one token each, at the beginning of a text and after a space: n of them are n tokens."""
    singles = set(_filter_single_tokens(tokenizer, PROMPT_WORDS))
    words = [word for word in PROMPT_WORDS if word in singles]
    if len(words) < MIN_WORDS:
        vocabulary = sorted(word.lstrip("Ġ▁ ") for word in tokenizer.get_vocab())
        plain = list(dict.fromkeys(word for word in vocabulary if word.isascii() and word.isalpha()))
        words = list(_filter_single_tokens(tokenizer, plain[:20_000]))[:512]
    if len(words) < MIN_WORDS:
        raise ConfigError(
            "too few words are one token by this tokenizer",
            where="--tokenizer",
            found=len(words),
            allowed=f"{MIN_WORDS} or more",
            do="give prompts of your own: --prompts FILE",
        )
    return words


def _filter_single_tokens(tokenizer: Any, words: list[str]) -> list[str]:
    first = count_tokens(tokenizer, words)
    later = count_tokens(tokenizer, [f"{word} {word} {word}" for word in words])
    return [word for word, single, three in zip(words, first, later, strict=True) if (single, three) == (1, 3)]
