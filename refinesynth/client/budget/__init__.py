"""What completions cost and may cost: prices from litellm's table, a backend's own or by the hour; a budget and its
tracker.
"""
