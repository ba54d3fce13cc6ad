"""Capacity plan: GPUs, nodes and cost of Spark jobs and a service, and whether the scheduler keeps up."""
