"""The Kubernetes API: connection, kubeconfig, lists and watches, paging."""
