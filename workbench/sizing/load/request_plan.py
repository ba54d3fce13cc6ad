"""Arrival times and prompts of requests: seeded, independent of the number of processes."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from workbench.core.errors import ConfigError, InputError, MissingToolError
from workbench.sizing.load.agent_tasks import AgentTask
from workbench.sizing.load.quality_probe import Probe

MAX_TRACE_BYTES = 64 << 20
MAX_FILE_BYTES = 256 << 20
PROMPT_KEYS = ("prompt", "question", "input_message", "text", "input")
# Short, common words: most tokenizers encode each with its space as one token.
PROMPT_WORDS = (  # noqa: SIM905 - more readable than a list
    "the of and to in is that for it was on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know"
).split()
# Size of the word pool for generated prompts, and the range of prompt lengths.
POOL_WORDS = 1 << 16
N_DRAWN_LENGTHS = 1 << 12
# Knuth's multiplicative hash constant. It is odd, so its multiples reach every position of a power of two.
ITEM_SPREAD_FACTOR = 2_654_435_761
# Distance between the items of two steps: generated prompts do not repeat within a sweep.
STEP_ITEMS = 10_000_000
BLOCK_TOKENS = 512
"""Tokens of a block in the Mooncake traces; taken where no prompt of a trace has more than a part of a block."""
BLOCK_SIZES = tuple(2**power for power in range(14))
MAX_UNFIT_FRACTION = 0.01
"""Fraction of a trace's prompts that may have another number of blocks than the others' size says. Chosen."""

MAX_TOKENIZER_BYTES = 256 << 20
MIN_WORDS = 30
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
FILE_NAME = "tokenizer.json"


def ramp_start_s(number: int, users: int, ramp_s: float, seed: str) -> float:
    """Start time of a user in a closed loop: one random time in each of `users` equal parts of the ramp.

    A simultaneous start would cause a burst that repeats every round and delays the client itself.

    >>> [ramp_start_s(number, 4, 2.0, "0") // 0.5 for number in range(4)]
    [0.0, 1.0, 2.0, 3.0]
    """
    return ramp_s * (number + random.Random(f"{seed}/{number}").random()) / users  # noqa: S311


def list_recorded_times(path: str | Path) -> list[float]:
    """Read the times of a file in its order: one number per line; `#` starts a comment."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise InputError("trace file is too large", where=path, allowed=f"up to {MAX_TRACE_BYTES >> 20} MiB")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the trace file", where=path, found=str(error)[:200]) from error
    arrival_times = []
    for number, line in enumerate(lines, 1):
        if line.split("#")[0].strip():
            text = line.split("#")[0].strip()
            try:
                time_s = float(text)
            except ValueError:
                time_s = float("nan")
            if not 0 <= time_s < 1e12:
                raise InputError("not a time", where=f"{path}, line {number}", found=text[:60])
            arrival_times.append(time_s)
    return arrival_times


LongNames = Literal["kept", "cut", "joined"]


class WordPool:
    """Random words drawn once and reused; drawing them for each prompt would cost as much CPU as sending it.

    `long_names`: What becomes of a name with more words than its text: kept whole, cut, or its end joined to one word.
    """

    def __init__(
        self,
        words: list[str],
        names: list[str] = PROMPT_WORDS,
        *,
        long_names: Literal["kept", "cut", "joined"] = "kept",
    ) -> None:
        self._names = names
        self._long_names = long_names
        self._text = " ".join(words) + " "
        ends = itertools.accumulate((len(word) + 1 for word in words), initial=0)
        self._starts = list(ends)
        self._count = len(words)

    def take_words(self, item: int, length: int) -> str:
        """Text of `length` words: a unique prefix that encodes the item number, then a slice of the pool."""
        at = item * ITEM_SPREAD_FACTOR % self._count
        names = self._name_item(item)
        # A name that is longer than the text is cut only where the length matters more than that no text is repeated.
        if len(names) > length and self._long_names != "kept":
            rest = [] if self._long_names == "cut" else ["".join(names[length - 1 :])]
            names = names[: length - len(rest)] + rest
        parts, n_left = [word + " " for word in names], length - len(names)
        while n_left > 0:
            taken = min(n_left, self._count - at)
            parts.append(self._text[self._starts[at] : self._starts[at + taken]])
            n_left, at = n_left - taken, 0
        return "".join(parts)[:-1]

    def _name_item(self, item: int) -> list[str]:
        """Words that encode an item number."""
        names: list[str] = []
        while item or not names:
            item, digit = divmod(item, len(self._names))
            names.append(self._names[digit])
        return names


def hash_numbers(*numbers: int) -> int:
    """Hash of these numbers, a number of 40 bits."""
    return zlib.crc32(repr(numbers).encode()) << 8 | zlib.crc32(repr(numbers[::-1]).encode()) & 255


def draw_token_count(draw: random.Random, mean: float, cv: float) -> int:
    """Draw a length in tokens from a lognormal distribution; the mean where it does not vary."""
    if not cv:
        return max(1, round(mean))
    variance = math.log1p(cv**2)
    return max(1, round(draw.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))))


def infer_block_tokens(lengths: Sequence[int], blocks: Sequence[Sequence[int]]) -> int | None:
    """Infer how many tokens a block of a trace's prompts has; null where lengths and numbers of blocks do not tell.

    A last, shorter block has an id of its own in most traces; in others only full blocks have one.

    >>> infer_block_tokens([160, 161], [range(10), range(11)]), infer_block_tokens([40, 50], [[1, 2], [1, 3]])
    (16, 32)
    >>> infer_block_tokens([160, 1000], [range(10), range(10)]) is None
    True
    """
    rows = Counter((length, len(ids)) for length, ids in zip(lengths, blocks, strict=True) if ids)
    sizes = _list_fitting_sizes(rows, lambda length, size: -(-length // size))
    if sizes and max((n for _, n in rows), default=1) == 1:
        # Each of these sizes makes the same prompts.
        return BLOCK_TOKENS if BLOCK_TOKENS in sizes else sizes[0]
    sizes = sizes or _list_fitting_sizes(rows, lambda length, size: length // size)
    if not sizes:
        low = max(-(-length // n) for length, n in rows)
        high = min(((length - 1) // (n - 1) for length, n in rows if n > 1), default=low)
        sizes = list(range(low, high + 1))
    return sizes[0] if len(sizes) == 1 else None


def _list_fitting_sizes(rows: Counter[tuple[int, int]], count_blocks: Callable[[int, int], int]) -> list[int]:
    """Powers of two that are the size of the blocks of nearly all rows.

    `rows`: Number of rows by length and number of blocks.
    """
    most = MAX_UNFIT_FRACTION * rows.total()
    unfit = {
        size: sum(count for (length, n), count in rows.items() if count_blocks(length, size) != n)
        for size in BLOCK_SIZES
    }
    return [size for size, count in unfit.items() if count <= most]


class Prompts(msgspec.Struct, frozen=True):
    """Prompts of a sweep; sent to the client processes.

    `tokens`, `tokens_cv`: Approximate mean length of generated prompts, in tokens, and its coefficient of variation
    (lognormal).
    `trace_input`, `trace_output`, `trace_blocks`: Lengths in tokens, and ids of the prompts' blocks, of a trace's
    requests in their order; empty without them.
    `block_tokens`: Tokens of a block; 0 where lengths and numbers of blocks tell them.
    `output_tokens`, `output_cv`: Mean length of the answers that are asked for, and its coefficient of variation
    (lognormal); null for none.
    `conversations`: Recorded ones, which users go through; empty without them.
    `tasks`: Tasks of agents, which users go through; empty without them.
    `probes`, `probe_share`: Questions with known answers, and the share of the requests that ask one.
    """

    texts: list[str]
    tokens: float = 400.0
    tokens_cv: float = 0.0
    unique_prefix: bool = False
    seed: int = 0
    words: list[str] = []
    trace_input: list[int] = []
    trace_output: list[int] = []
    trace_blocks: list[list[int]] = []
    output_tokens: int | None = None
    output_cv: float = 0.0
    block_tokens: int = 0
    probes: list[Probe] = []
    probe_share: float = 0.0
    conversations: list[list[tuple[str, str]]] = []
    tasks: list[AgentTask] = []

    def answer_length(self, item: int) -> int | None:
        """Longest answer to ask for, in tokens; null for what the target says."""
        if self.trace_output:
            return self.trace_output[item % STEP_ITEMS % len(self.trace_output)]
        if self.output_tokens is None or not self.output_cv:
            return self.output_tokens
        draw = random.Random(f"{self.seed}/answer/{item}")  # noqa: S311 - not used for secrets
        return draw_token_count(draw, self.output_tokens, self.output_cv)

    def iterate_items(self, step: int, share: int, shares: int) -> Iterator[tuple[int, str]]:
        """Iterate over item numbers and texts of the requests of one process in a step.

        The user's prompts are shuffled again in each pass. Generated prompts never repeat, not even across steps.
        """
        if not self.texts:
            yield from self._generate_items(step, share, shares)
        lap = 0
        while True:
            order = list(range(len(self.texts)))
            random.Random(f"{self.seed}/{step}/{lap}").shuffle(order)  # noqa: S311 - not used for secrets
            # The stride continues across passes; otherwise a process would send only part of a short file.
            for place, row in enumerate(order):
                if (lap * len(order) + place) % shares == share:
                    # A prompt with another prefix counts as another prompt, for caches and for repeated_prompts.
                    item = step * STEP_ITEMS + lap * len(order) + place if self.unique_prefix else row
                    yield item, self._prefix_text(self.texts[row], f"{step}/{lap}/{place}")
            lap += 1

    def _generate_items(self, step: int, share: int, shares: int) -> Iterator[tuple[int, str]]:
        """Yield the generated prompts of a step without end, with their item number.

        This client has `share` of `shares`.
        """
        draw = random.Random(f"{self.seed}/made")  # noqa: S311 - not used for secrets
        pool, block_tokens = self._build_pool(draw), self._find_block_tokens()
        lengths = [self._draw_length(draw) for _ in range(N_DRAWN_LENGTHS if self.tokens_cv else 1)]
        number = share
        while True:
            item = step * STEP_ITEMS + number
            if self.trace_input:
                yield item, self._trace_text(pool, block_tokens, item)
            else:
                length = lengths[item * ITEM_SPREAD_FACTOR % len(lengths)]
                text = pool.take_words(item, length)
                # Generated prompts differ from their first word on, and another beginning would change their length.
                yield item, text if self.words else self._prefix_text(text, f"{step}/{number}")
            number += shares

    def open_trace_texts(self) -> Callable[[int], str]:
        """Function from an item to its prompt, for the requests of a trace."""
        pool = self._build_pool(random.Random(f"{self.seed}/made"))  # noqa: S311
        return partial(self._trace_text, pool, self._find_block_tokens())

    def _find_block_tokens(self) -> int:
        """Tokens of a block: as given, or as the trace's lengths tell."""
        if self.block_tokens or not self.trace_blocks:
            return self.block_tokens or BLOCK_TOKENS
        return infer_block_tokens(self.trace_input, self.trace_blocks) or BLOCK_TOKENS

    def _build_pool(self, draw: random.Random) -> WordPool:
        words = self.words or PROMPT_WORDS
        long_names: LongNames = "joined" if self.trace_input or self.tasks else "kept"
        return WordPool(draw.choices(words, k=POOL_WORDS), words, long_names="cut" if self.words else long_names)

    def _trace_text(self, pool: WordPool, block_tokens: int, item: int) -> str:
        """Prompt of a trace's request: blocks with equal ids have equal words within one pass through the trace."""
        step, number = divmod(item, STEP_ITEMS)
        lap, row = divmod(number, len(self.trace_input))
        blocks = self.trace_blocks[row] if self.trace_blocks else []
        return _join_blocks(pool, self.trace_input[row], blocks, block_tokens, (step, lap), item)

    def open_call_texts(self) -> Callable[[int, int, tuple[int, ...]], str]:
        """Function from the number of a task, the place of its call and the pass through the file to its prompt."""
        pool = self._build_pool(random.Random(f"{self.seed}/made"))  # noqa: S311

        def write_prompt(task: int, place: int, scope: tuple[int, ...]) -> str:
            call, item = self.tasks[task].calls[place], hash_numbers(*scope, task, place)
            return _join_blocks(pool, call.input_tokens, call.blocks, self.block_tokens, scope, item)

        return write_prompt

    def _draw_length(self, draw: random.Random) -> int:
        return draw_token_count(draw, self.tokens, self.tokens_cv)

    def _prefix_text(self, text: str, name: str) -> str:
        if not self.unique_prefix:
            return text
        return f"[{random.Random(f'{self.seed}/{name}').getrandbits(64):016x}] {text}"  # noqa: S311


def _join_blocks(
    pool: WordPool, length: int, blocks: Sequence[int], block_tokens: int, scope: tuple[int, ...], item: int
) -> str:
    """Prompt whose blocks have equal words where their ids are equal within a scope; its rest is that of the item."""
    parts = []
    for place, block in enumerate(blocks):
        size = min(block_tokens, length - place * block_tokens)
        if size <= 0:
            break
        # The name of a block is its own, so that two of them differ from their first words on.
        parts.append(pool.take_words(hash_numbers(*scope, block), size))
    missing = length - block_tokens * len(blocks)
    if missing > 0:
        parts.append(pool.take_words(item, missing))
    return " ".join(parts)


def read_prompts(path: str | Path, key: str | None = None) -> list[str]:
    """Read prompts from a file: .txt (one per line), .jsonl, .json (a list) or .csv.

    `key`: Field or column with the prompt; by default the first of prompt, question, input_message, text, input.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError("prompt file is too large", where=path, allowed=f"up to {MAX_FILE_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the prompt file", where=path, found=str(error)[:200]) from error
    rows = _iterate_prompt_rows(path, text)
    prompts = [_prompt_from_row(row, key, f"{path}, row {number}") for number, row in rows]
    if not prompts:
        raise InputError("no prompts", where=path, found="an empty file")
    return prompts


def _iterate_prompt_rows(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a file of prompts with their number: CSV, JSON, JSON lines, or a prompt on each line."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        # A prompt may be a whole document: the limit of a cell, 131,072 characters, is for all readers of the process.
        csv.field_size_limit(MAX_FILE_BYTES)
        try:
            yield from enumerate(csv.DictReader(io.StringIO(text)), 1)
        except csv.Error as error:
            raise InputError("not CSV", where=path, found=str(error)[:120]) from error
    elif suffix == ".json":
        rows = _parse_prompt_json(text, str(path))
        if not isinstance(rows, list):
            raise InputError("not a list of prompts", where=path, found=type(rows).__name__)
        yield from enumerate(rows, 1)
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield number, _parse_prompt_json(line, f"{path}, row {number}") if suffix == ".jsonl" else line.strip()


def _parse_prompt_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where=where, found=str(error)[:120]) from error


def _prompt_from_row(row: Any, key: str | None, where: str) -> str:
    """Text of a row's prompt: the row itself, or its field `key`, or else the first usual field."""
    if isinstance(row, str) and key is None:
        return row
    if not isinstance(row, dict):
        raise InputError("not a prompt: expected a text or an object", where=where, found=type(row).__name__)
    name = key if key is not None else next((prompt_key for prompt_key in PROMPT_KEYS if prompt_key in row), None)
    if name is None or name not in row:
        wanted = [key] if key is not None else list(PROMPT_KEYS)
        raise InputError("no field with a prompt", where=where, found=sorted(map(str, row))[:20], allowed=wanted)
    if not isinstance(row[name], str) or not row[name]:
        raise InputError("the prompt is not a text", where=f"{where}, {name}", found=repr(row[name])[:60])
    return str(row[name])


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
