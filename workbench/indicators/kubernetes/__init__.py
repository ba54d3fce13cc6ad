"""A session on a Kubernetes cluster: manifests, submit, collect; each works alone."""
