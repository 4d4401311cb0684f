"""The short way to OpenAI-compatible servers: one aiohttp session and orjson, with litellm's knowledge but without its
calls.

`completion.direct_completion` opens a backend that goes this way, `choosing.path_of` says which do. Nothing is handed on
here: a listing of backends loads neither aiohttp nor pydantic-ai.
"""
