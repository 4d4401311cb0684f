"""Costs and budgets of completions: prices from litellm's table, a backend's own or by the hour; a budget and its
tracker.
"""
