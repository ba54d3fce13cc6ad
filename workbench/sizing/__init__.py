"""How many GPUs do N users need, so that p95 stays at or below T?"""
