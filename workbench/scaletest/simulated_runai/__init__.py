"""A small stand-in for Run:ai's operators on a local cluster: it creates jobs, pods, pod groups and volumes.

Real are the API server, the garbage collector and the scheduler, and so every time that they stamp. Simulated is what
makes jobs of workloads, pods of jobs, pod groups of pods and volumes of claims: how long that takes is this program's
speed and says nothing about Run:ai.
"""

NAME = "simulated-runai"
