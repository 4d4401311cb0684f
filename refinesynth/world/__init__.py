"""Executes a rulebook over a JSON state: parse the action, check what it requires, apply its effects."""
