from workbench.indicators.storage.analysis import connect

with connect("data/samples/indicators/numpy") as duck:
    found = duck.sql("SELECT arm, median(value) FROM observations WHERE metric = 'Sort' GROUP BY arm")
    median_ms = dict(found.fetchall())

assert len(median_ms) == 6  # five stacks and the control
assert median_ms["numpy 1.24.4"] > 1.5 * median_ms["numpy 2.2.6"]
