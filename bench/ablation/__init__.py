"""The paper's ablation at toy scale: small models that learn with and without the repair, and then play."""
