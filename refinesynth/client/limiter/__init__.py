"""The rate limiter: one for each server and key, over a concurrency limit that adapts, rates, and a circuit breaker."""
