"""Kubernetes for all areas: access to a cluster by a kubeconfig, and the parts that all manifests share."""
