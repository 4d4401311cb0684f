"""Who may ask a server, and when: one governor a server and key, over a limit that adapts, rates, and a breaker."""
