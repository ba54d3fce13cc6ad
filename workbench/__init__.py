"""Answers about accelerated computing, with measured evidence."""

from workbench.core.lazy_imports import delay_grammar_import

__version__ = "0.1.0"

delay_grammar_import()
