"""An autoscaler under test: a day of traffic, start-up time, GPU hours and missed goals, in virtual time."""
