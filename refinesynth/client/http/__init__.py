"""Direct client for OpenAI-compatible servers: one aiohttp session and orjson, with litellm's knowledge of models.

`completion.DirectCompletion` opens a backend, `choosing.path_of` decides its path. Nothing is re-exported, so a
listing of backends loads neither aiohttp nor pydantic-ai.
"""
