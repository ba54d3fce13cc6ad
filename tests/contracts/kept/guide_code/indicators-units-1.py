import math

from workbench.indicators.recommending.units import NotAcceptable, Step


class SmallMemory(Step):
    """A tenth of what a stack saves of its peak memory counts like speed."""

    query = "SELECT stack, MEDIAN(ru_maxrss) AS peak_kib FROM runs WHERE status = 'ok' GROUP BY stack"

    def should_include(self, recommendation_type):
        return recommendation_type in ("performance", "stable")

    def run(self, stack):
        peaks = dict(self.observations.iter_rows())
        if peaks.get(stack.name) is None:
            raise NotAcceptable("its peak memory was never measured")
        saved = math.log(peaks[self.context.baseline] / peaks[stack.name])
        return 0.1 * saved, [stack.info(f"{stack.name} needs {peaks[stack.name] / 1024:.0f} MiB at its peak")]
