"""The finder of changes of level at the place where scripts import it; it is shared statistics now."""

from workbench.stats.change_points import find_change_points, find_segments

__all__ = ["find_change_points", "find_segments"]
