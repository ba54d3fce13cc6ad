"""Predicts a deployment that nobody owns yet: AISimulate's kernels, our law and interval, a measured anchor."""
