"""Run a session on a Kubernetes cluster: plan, submit, collect; each step works alone."""
