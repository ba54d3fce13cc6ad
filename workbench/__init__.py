"""Answers about accelerated computing, with measured evidence."""

from workbench.deferred import put_off

__version__ = "0.1.0"

put_off()
