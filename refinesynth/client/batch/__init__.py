"""Requests sent through a provider's batch API: at half the price, and answered within a day."""
