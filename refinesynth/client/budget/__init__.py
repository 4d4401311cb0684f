"""Costs and budgets of completions: a backend's own prices or litellm's table; a budget and its tracker."""
