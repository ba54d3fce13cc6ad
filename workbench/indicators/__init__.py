"""Which library stack is fastest for my work, on this hardware?

Flow: requirements → locks → environments → runs, one document each → observations → effects → recommendation; SQL is
made from the documents
"""
