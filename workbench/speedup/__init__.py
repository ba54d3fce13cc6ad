"""How much faster will Spark jobs be on an accelerator, operator by operator, and which gain most?

Flow: event log tables → executions and time pieces → prices and factors by session → factor model → predictions →
ranking
"""
