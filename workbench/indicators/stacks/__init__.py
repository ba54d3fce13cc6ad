"""Stacks: from requirements and free packages to hashed locks, and the environments they become."""
