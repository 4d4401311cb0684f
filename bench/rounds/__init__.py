"""Does a model learn from its own mistakes?"""
