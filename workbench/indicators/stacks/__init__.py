"""Stacks: from requirements and free packages to hashed locks and their environments."""
