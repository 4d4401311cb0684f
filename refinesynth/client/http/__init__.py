"""Direct client for OpenAI-compatible servers. Re-exports nothing: a listing of backends must not import aiohttp."""
