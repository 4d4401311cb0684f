"""What an import costs, and what the offline paths never load."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.process

PREAMBLE = """
import sys
def loaded(*names):
    return sorted(name for name in names if name in sys.modules)
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PREAMBLE + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_resolving_and_listing_loads_no_heavy_library() -> None:
    program = """
    from refinesynth.backends import resolve, resolve_roles
    from refinesynth.client import describe
    describe(), resolve("gpt-4o"), resolve_roles({"default": "deepseek", "player": "hosted_vllm/x"})
    print(loaded("litellm", "pydantic_ai", "openai", "httpx"))
    """
    assert run(program) == "[]"


def test_an_injected_completion_function_never_loads_litellm() -> None:
    program = """
    import anyio
    from pydantic_ai import Agent
    from refinesynth.backends import PRESETS
    from refinesynth.client import open_model
    async def call(**request):
        if request["messages"][-1]["content"] == "fail":
            raise OSError("down")
        return {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
    async def main():
        model = open_model(PRESETS["gpt-4o"].backend.model_copy(update={"retries": 0}), call=call)
        print((await Agent(model).run("hi")).output)
        try:
            await Agent(model).run("fail")
        except Exception as error:
            print(type(error).__name__)
    anyio.run(main)
    print(loaded("litellm"))
    """
    assert run(program) == "hello\nRunStopped\n[]"


def test_importing_litellm_prints_nothing_reads_no_env_file_and_fetches_nothing() -> None:
    program = """
    import os, socket, tempfile
    os.chdir(tempfile.mkdtemp())
    open(".env", "w").write("STOLEN_API_KEY=from-the-file")
    asked = []
    def no_network(*where):
        asked.append(where)
        raise OSError("there is no network")
    socket.getaddrinfo = socket.socket.connect = no_network
    from refinesynth.client import litellm_sdk
    litellm_sdk.litellm()
    # What is read with the first request to Anthropic.
    from litellm.anthropic_beta_headers_manager import get_beta_headers_config
    get_beta_headers_config("https://example.org/headers.json")
    print(os.environ.get("STOLEN_API_KEY"), asked)
    """
    assert run(program) == "None []"
