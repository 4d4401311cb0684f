"""Servers with certificates of their own, over both paths."""

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp import web
from anyio.from_thread import start_blocking_portal
from chat_server import completion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest

from refinesynth.backends import Backend
from refinesynth.client import close_models, litellm_sdk, open_model
from refinesynth.errors import RunStopped

pytestmark = pytest.mark.process


def certificate(folder: Path) -> tuple[Path, Path]:
    """One that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ours")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "ours.pem", folder / "key.pem"
    paths[0].write_bytes(built.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths[1].write_bytes(key.private_bytes(*form))
    return paths


@contextmanager
def listening(tls: ssl.SSLContext | None) -> Generator[str]:
    """A port at which a server answers, over TLS if there is a context."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(completion())

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        return f"127.0.0.1:{runner.addresses[0][1]}"

    with start_blocking_portal() as portal:
        try:
            yield portal.call(start)
        finally:
            portal.call(runner.cleanup)


@pytest.fixture
def own(tmp_path: Path) -> Generator[tuple[str, Path]]:
    """The server with a certificate of its own, and the certificate."""
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    with listening(context) as place:
        yield place, cert


async def ask(base_url: str, path: str) -> None:
    backend = Backend.model_validate({"model": "hosted_vllm/m", "base_url": base_url, "path": path})
    model = open_model(backend)
    try:
        await model_request(model, [ModelRequest.user_text_prompt("hi")])
    finally:
        await close_models([model])
        if path == "litellm":
            # It keeps them open for ever, and says so of those with TLS.
            await litellm_sdk.litellm().close_litellm_async_clients()


@pytest.mark.parametrize("path", ["direct", "litellm"])
async def test_a_certificate_that_is_not_trusted_stops_the_run_and_is_called_that(
    own: tuple[str, Path], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(
        RunStopped, match=r"TLS certificate at https://.* not trusted here; name the file .* SSL_CERT_FILE"
    ):
        await ask(f"https://{own[0]}/v1", path)
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(RunStopped, match=r"SSL_CERT_FILE names '/nowhere.pem', and no such file is there"):
        await ask(f"https://{own[0]}/v1", path)


@pytest.mark.parametrize("path", ["direct", "litellm"])
async def test_one_that_is_named_is_trusted(own: tuple[str, Path], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own[1]))
    await ask(f"https://{own[0]}/v1", path)


@pytest.mark.parametrize("path", ["direct", "litellm"])
async def test_a_server_without_tls_is_called_that(path: str) -> None:
    with (
        listening(None) as place,
        pytest.raises(RunStopped, match=r"does not speak TLS at https://.*begins with http://"),
    ):
        await ask(f"https://{place}/v1", path)
