"""How many GPUs and nodes do Spark jobs and a service's users need, at what cost, and does the scheduler keep up?"""
