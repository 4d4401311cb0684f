"""Direct client for OpenAI-compatible servers. Nothing is re-exported: a listing of backends loads no aiohttp."""
