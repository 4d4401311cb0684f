"""Requests through a provider's batch API: at half the price, answered within a day."""
