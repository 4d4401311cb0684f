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
    import refinesynth.client.http.transport
    resolve("gpt-4o"), resolve_roles({"default": "deepseek", "player": "hosted_vllm/x"})
    print(loaded("litellm", "pydantic_ai", "openai", "httpx"))
    """
    assert run(program) == "[]"


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
