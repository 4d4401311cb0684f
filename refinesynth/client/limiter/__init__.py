"""Who may ask a server, and when: one limiter a server and key, over a limit that adapts, rates, and a breaker."""
