"""The tables of a recommendation. Ratios are as in EFFECTS: above 1 is better than the baseline, always."""

from __future__ import annotations

from workbench.tables import Column, Table

_SESSION = Column("session_id", "str", "The session.")
_STACK = Column("stack", "str", "Name of the stack.")
_KEY = Column("stack_key", "str", "Hash of its lock, Python and platform.")

RECOMMENDATIONS = Table(
    "recommendations",
    "One row per stack that no constraint left out, the best score first.",
    ("session_id", "stack"),
    (
        _SESSION,
        Column("rank", "int", "Place by score, from 1."),
        _STACK,
        _KEY,
        Column("arm", "str", "Its side of the session; null for one that was not measured.", nullable=True),
        Column("baseline", "bool", "It is the baseline."),
        Column("recommended", "bool", "It is the answer."),
        Column("score", "float", "Sum of the scores of all steps, as logarithms."),
        Column("ratio", "float", "How many times better than the baseline over the mix.", nullable=True),
        Column("low", "float", "Low end of the interval.", nullable=True),
        Column("high", "float", "High end of the interval.", nullable=True),
        Column("level", "float", "Confidence of the interval.", unit="share"),
        Column("n", "int", "Rounds in which it and the baseline have all values of the mix.", unit="rounds"),
        Column("p_best", "float", "Chance that its score is the highest.", unit="share", nullable=True),
        Column("p_near", "float", "Chance that it is within the margin of the highest.", unit="share", nullable=True),
        Column("regret_pct", "float", "Expected loss against the highest.", unit="%", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED over the mix; BASELINE."),
        Column("rounds_needed", "int", "UNDECIDED: rounds that would likely decide.", nullable=True),
        Column("predicted", "bool", "From stacks that share its versions, not from runs of its own."),
    ),
)

EXCLUDED = Table(
    "excluded",
    "One row per stack that was left out, and why.",
    ("session_id", "stack"),
    (
        _SESSION,
        _STACK,
        _KEY,
        Column("unit", "str", "The unit that left it out."),
        Column("reason", "str", "Why, as a sentence."),
        Column("link", "str", "Where to see it.", nullable=True),
        Column("runs", "list[str]", "The runs behind it, as paths below the session's folder."),
    ),
)

JUSTIFICATIONS = Table(
    "justifications",
    "One row per sentence of the justification.",
    ("session_id", "number"),
    (
        _SESSION,
        Column("number", "int", "Place, from 1."),
        Column("stack", "str", "The stack it is about; null for the session.", nullable=True),
        Column("type", "str", "INFO, WARNING or ERROR."),
        Column("message", "str", "The sentence."),
        Column("link", "str", "Where to see it: a path below the session's folder, or an address.", nullable=True),
        Column("package_name", "str", "The package it is about.", nullable=True),
        Column("version_range", "str", "Its versions.", nullable=True),
        Column("metric", "str", "The metric it is about; `mix` for all of them.", nullable=True),
        Column("effect_pct", "float", "How much better than the baseline.", unit="%", nullable=True),
        Column("low_pct", "float", "Low end of its interval.", unit="%", nullable=True),
        Column("high_pct", "float", "High end of its interval.", unit="%", nullable=True),
        Column("n_rounds", "int", "Rounds behind it.", unit="rounds", nullable=True),
        Column("runs", "list[str]", "The runs behind it, as paths below the session's folder."),
        Column("hardware", "str", "The machine they were measured on.", nullable=True),
    ),
)

PROPOSALS = Table(
    "proposals",
    "One row per stack that is worth measuring next.",
    ("session_id", "stack"),
    (
        _SESSION,
        Column("place", "int", "Order in which they were drawn, from 1."),
        _STACK,
        _KEY,
        Column("ratio", "float", "Predicted ratio to the baseline."),
        Column("low", "float", "Low end of its interval."),
        Column("high", "float", "High end of its interval."),
        Column("n", "int", "Rounds it was measured in so far.", unit="rounds"),
    ),
)
