"""Grounded play measured: how fast a rulebook is executed, what it catches, and whether it plays known worlds right."""
