"""Columns of this area's tables by what they hold."""

from __future__ import annotations

from workbench.core.tables import Column


def text_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of texts."""
    return Column(name, "str", meaning, nullable=nullable)


def count_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of whole numbers."""
    return Column(name, "int", meaning, nullable=nullable)


def number_column(name: str, meaning: str, unit: str = "", *, nullable: bool = False) -> Column:
    """A column of numbers."""
    return Column(name, "float", meaning, unit, nullable=nullable)


def seconds_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of times in seconds."""
    return number_column(name, meaning, "s", nullable=nullable)


def share_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of shares, 0 to 1."""
    return number_column(name, meaning, "share", nullable=nullable)


def ratio_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of ratios, such as factors."""
    return number_column(name, meaning, "times", nullable=nullable)
