"""Answers about accelerated computing, with measured evidence."""

__version__ = "0.1.0"
