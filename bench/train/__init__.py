"""Training throughput beside other trainers, each in an environment of its own."""
