"""Where completions come from: names to models, the pydantic-ai model on the litellm SDK, the rehearsal."""
