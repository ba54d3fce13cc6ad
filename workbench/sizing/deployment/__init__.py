"""From a GPU count to replicas, nodes and Kubernetes manifests."""
