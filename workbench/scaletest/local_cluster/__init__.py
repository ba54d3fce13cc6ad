"""A real control plane on this machine, without containers; only the nodes are simulated."""
