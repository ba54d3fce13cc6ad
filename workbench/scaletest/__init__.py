"""How many workloads per second does my cluster schedule, and where does the time go?"""
