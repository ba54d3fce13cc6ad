"""When a job will start: a cluster's state, how long its jobs run, and its schedulers in virtual time."""
