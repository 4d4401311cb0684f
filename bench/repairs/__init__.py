"""Own mistakes and repairs: what they cost, whether they are rewarded, and whether their repair in place teaches."""
