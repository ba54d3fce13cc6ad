"""Which library stack is fastest for my work, on this hardware?"""
