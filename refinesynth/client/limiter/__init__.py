"""Rate limiter: one per server and key, with an adaptive concurrency limit, token buckets and a circuit breaker."""
