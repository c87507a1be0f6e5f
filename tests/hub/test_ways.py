"""The ways to a hub: proxies of the surroundings and of the settings, exceptions from them, and mirrors."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.hub.conftest import QUICK, Journal
from tests.hub.forward_proxy import ForwardProxy, proxying
from tests.hub.loopback import LoopbackHub, repository_of
from tests.real_runs import point_at_training_environment
from tunesmith_core import hub as core_hub
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import hub_folder
from tunesmith_core.operations.kinds.hub import SearchSpec
from tunesmith_core.settings import SettingsFile
from tunesmith_engine.hub.client import Hub
from tunesmith_engine.hub.download import download

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardProxy]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with proxying() as proxy:
        yield proxy


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of this computer's loopback interface, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Loopback")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "loopback.crt", folder / "loopback.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return public, private


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_everything_goes_through_the_proxy_of_the_surroundings(
    variable: str, hub: LoopbackHub, proxy: ForwardProxy, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, proxy.address)
    folder = download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    assert (folder / "model.safetensors").is_file()
    assert f"{hub.endpoint}/api/models/org/whole?blobs=true" in proxy.forwarded
    assert f"{hub.storage}/storage/org--whole/model.safetensors" in [each.rstrip("?") for each in proxy.forwarded]
    assert len(proxy.forwarded) >= len(hub.requests), "no file came around the proxy"


@pytest.mark.parametrize("exceptions", ["127.0.0.1,localhost", "*"])
def test_no_proxy_names_what_is_asked_directly(
    exceptions: str, hub: LoopbackHub, proxy: ForwardProxy, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy.address)
    monkeypatch.setenv("no_proxy", exceptions)
    download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    assert proxy.forwarded == []


def test_encrypted_connections_go_through_a_tunnel(
    whole_model: Path,
    home: Path,
    proxy: ForwardProxy,
    journal: Journal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    public, private = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(public, private)
    monkeypatch.setenv("https_proxy", proxy.address)
    with LoopbackHub({"org/whole": repository_of(whole_model)}, tls) as hub:
        with pytest.raises(TunesmithError, match="is not trusted") as caught:
            download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
        assert caught.value.code == "hub-ssl-or-proxy"
        assert "SSL_CERT_FILE" in caught.value.hint
        monkeypatch.setenv("SSL_CERT_FILE", str(public))
        folder = download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
        hosts = {hub.endpoint.removeprefix("https://"), hub.storage.removeprefix("https://")}
    assert (folder / "model.safetensors").read_bytes() == (whole_model / "model.safetensors").read_bytes()
    assert set(proxy.tunnels) == hosts
    assert proxy.forwarded == []


def test_a_dead_proxy_is_named_without_its_password(
    hub: LoopbackHub, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("http_proxy", f"http://person:secret@{dead}")
        with pytest.raises(TunesmithError) as caught:
            Hub(hub.endpoint, retry=QUICK).search("whole")
    assert caught.value.code == "hub-ssl-or-proxy"
    assert caught.value.message == f"The proxy {dead} can't be reached."
    assert hub.requests == []


def test_a_proxy_that_wants_a_password(
    hub: LoopbackHub, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.password = "person:secret"
    monkeypatch.setenv("http_proxy", proxy.address)
    with pytest.raises(TunesmithError) as caught:
        Hub(hub.endpoint, retry=QUICK).search("whole")
    assert caught.value.code == "hub-ssl-or-proxy"
    assert "user name and password" in caught.value.message
    # Through a tunnel it is the same.
    monkeypatch.setenv("https_proxy", proxy.address)
    with pytest.raises(TunesmithError, match="user name and password"):
        Hub(hub.endpoint.replace("http:", "https:"), retry=QUICK).search("whole")
    monkeypatch.setenv("http_proxy", proxy.address.replace("//", "//person:secret@"))
    assert [model.id for model in Hub(hub.endpoint, retry=QUICK).search("whole")] == ["org/whole"]


def test_the_proxy_and_the_mirror_of_the_settings(
    hub: LoopbackHub, proxy: ForwardProxy, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at_training_environment(home)
    # Other tests of this process may have worked offline.
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    hub.prefix = "/mirrors/models"
    settings = SettingsFile()
    settings.change(proxy=proxy.address, hub_endpoint=f"{hub.endpoint}/")
    settings.save()
    assert [model.id for model in core_hub.search(SearchSpec("whole"))] == ["org/whole"]
    assert core_hub.get("org/whole") == hub_folder("org/whole")
    assert all("//api" not in address and "/mirrors/models//" not in address for address in proxy.forwarded)
    assert f"{hub.endpoint}/api/models/org/whole?blobs=true" in proxy.forwarded


@pytest.mark.parametrize("ending", ["", "/", "//"])
@pytest.mark.parametrize("prefix", ["", "/mirror", "/a/deep/path"])
def test_a_mirror_may_have_a_path(prefix: str, ending: str, hub: LoopbackHub, journal: Journal) -> None:
    hub.prefix = prefix
    address = hub.endpoint + ending
    assert [model.id for model in Hub(address, retry=QUICK).search("whole")] == ["org/whole"]
    assert Hub(address, retry=QUICK).card("org/whole").endswith("# Tiny\n")
    folder = download(journal, "org/whole", endpoint=address, retry=QUICK)
    assert (folder / "model.safetensors").is_file()
