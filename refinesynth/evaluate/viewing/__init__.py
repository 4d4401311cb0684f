"""A run shown in the viewer of Inspect AI: its logs, and what serves them."""
