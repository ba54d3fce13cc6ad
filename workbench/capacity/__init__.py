"""Capacity plan: GPUs, nodes and cost of Spark jobs and a service, and whether the scheduler keeps up.

Flow: run folders of other areas → inputs → model, drawn → hours, peak, binding constraint, break-even; it reads
tables, never another area's code
"""
