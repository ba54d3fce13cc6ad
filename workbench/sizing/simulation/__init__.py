"""A cluster of GPUs that serve a language model by continuous batching, simulated: in virtual time and over HTTP."""
