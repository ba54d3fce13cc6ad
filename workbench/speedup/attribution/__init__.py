"""Attribution: where the wall time of an execution goes."""
