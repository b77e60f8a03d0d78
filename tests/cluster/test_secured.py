"""Servers that ask for TLS and for credentials: real ones, on the loopback."""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import LogStream
from kbproc.engine.cluster.work.command import work
from tests.kit.nats import Server, Servers, free_ports
from tests.kit.patience import until
from tests.kit.talk import Session

_KINDS = {"O": 14, "A": 0, "U": 20}  # the bytes before the keys of operator, account and user
_SEED = 18
_RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)


class Key:
    """A key of NATS, as its nkeys are written."""

    def __init__(self, kind: str) -> None:
        self._key = Ed25519PrivateKey.generate()
        number = _KINDS[kind] << 3
        self.public = _checked(bytes([number]) + self._key.public_key().public_bytes(*_RAW))
        head = bytes([_SEED << 3 | number >> 5, (number & 31) << 3])
        self.seed = _checked(head + self._key.private_bytes_raw())

    def jwt(self, subject: Key, name: str, nats: dict[str, Any]) -> str:
        """Returns a JWT of this key about `subject`."""
        claims = {"iss": self.public, "sub": subject.public, "name": name, "iat": 0}
        identity = base64.b32encode(hashlib.sha256(_json(claims | nats)).digest())
        body = {**claims, "jti": identity.decode().rstrip("="), "nats": {**nats, "version": 2}}
        signed = b".".join(map(_web, ({"typ": "JWT", "alg": "ed25519-nkey"}, body)))
        return (signed + b"." + _url(self._key.sign(signed))).decode()


def _checked(data: bytes) -> str:
    checksum = binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(data + checksum).decode().rstrip("=")


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _web(value: Any) -> bytes:
    return _url(_json(value))


def _url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def certificate(folder: Path) -> tuple[Path, Path]:
    """Makes a certificate for 127.0.0.1 that vouches for itself; returns its file and its key's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kbproc's tests")])
    begins = datetime.datetime(2020, 1, 1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    usage = x509.BasicConstraints(ca=True, path_length=None)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(datetime.datetime(2100, 1, 1))
        .add_extension(address, critical=False)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(secret)
    return folder / "cert.pem", folder / "key.pem"


def users(folder: Path) -> tuple[str, Path]:
    """Returns what a server's configuration says of an operator's accounts, and a user's file."""
    operator, system, account, user = map(Key, "OAAU")
    limits: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1}
    limits |= {"conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1}
    limits |= {"consumer": -1, "wildcards": True}
    of_account = {"type": "account", "limits": limits}
    accounts = {
        system.public: operator.jwt(system, "system", {"type": "account"}),
        account.public: operator.jwt(account, "team", of_account),
    }
    of_operator = {"type": "operator", "system_account": system.public}
    jwt = account.jwt(user, "ann", {"type": "user", "subs": -1, "data": -1, "payload": -1})
    dashes = "-" * 5
    creds = "".join(
        f"{dashes}BEGIN {part}{dashes}\n{text}\n-{dashes}END {part}{dashes}-\n\n"
        for part, text in (("NATS USER JWT", jwt), ("USER NKEY SEED", user.seed))
    )
    preload = "\n".join(f"  {name}: {text}" for name, text in accounts.items())
    configuration = (
        f"operator: {operator.jwt(operator, 'operator', of_operator)}\n"
        f"system_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{\n{preload}\n}}\n"
    )
    return configuration, written(folder / "ann.creds", creds)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Any]:
    """Starts a server with more in its configuration, and ends it."""
    servers = Servers()

    def start(more: str) -> Server:
        server = Server(tmp_path / "server", free_ports(3))
        conf = server.folder / "server.conf"
        text = conf.read_text() + more
        conf.write_text(text.replace("http:", "https:") if "tls {" in more else text)
        servers.append(server.start())
        until(lambda: "Server is ready" in server.told(), "the server", server.told)
        return server

    yield start
    servers.kill()


def refusal(settings: StreamSettings) -> str:
    with pytest.raises(KbprocError) as error:
        ask(settings, LogStream.state)
    return error.value.message


def test_a_node_logs_in_by_a_creds_file_and_encrypts(
    secured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts, creds = users(tmp_path)
    cert, key = certificate(tmp_path)
    server = secured(f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n{accounts}')
    address = server.url.replace("nats://", "tls://")
    settings = StreamSettings(
        kind="jetstream", servers=[address], stream="team", credentials=str(creds)
    )
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert "certificate" in refusal(settings)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    where = {
        "servers": [address],
        "stream": "team",
        "monitor": [server.monitor.replace("http:", "https:")],
    }
    one, two = (Session(tmp_path / name / "store", cwd=tmp_path) for name in ("one", "two"))
    try:
        hash = one.data("cluster.init", **where, credentials=creds.name)["hash"]
        assert two.error("cluster.join", **where)["type"] == "store.io"
        assert two.data("cluster.join", **where, credentials=creds.name)["hash"] == hash
        with_password = {"servers": ["nats://ann:secret@127.0.0.1:1"], "stream": "team"}
        error = two.error("cluster.join", **with_password)
        assert error["type"] == "input.invalid_params" and "secret" not in json.dumps(error)
    finally:
        one.close(), two.close()
    assert f'"{creds}"' in (tmp_path / "one/store/store.toml").read_text()


def test_a_node_logs_in_by_name_and_password(secured: Any, tmp_path: Path) -> None:
    """The file of credentials is refused where it says nothing or others may read it."""
    server = secured("authorization { user: ann, password: secret }\n")
    mine = written(tmp_path / "ann", "ann:secret\n")
    settings = StreamSettings(
        kind="jetstream", servers=[server.url], stream="team", credentials=str(mine)
    )
    assert "There is no stream" in refusal(settings) or "stream not found" in refusal(settings)
    mine.write_text("ann:wrong\n")
    assert "Authorization" in refusal(settings)
    mine.write_text("-----BEGIN USER NKEY SEED-----\nSUA\n------END USER NKEY SEED------\n")
    assert f"{mine} is no file of credentials" in refusal(settings)
    mine.chmod(0o644)
    assert f"others may read {mine}" in refusal(settings)
    mine.unlink()
    assert str(mine) in refusal(settings)


def test_an_address_of_the_scheme_tls_is_never_used_without(secured: Any, tmp_path: Path) -> None:
    address = secured("").url.replace("nats://", "tls://")
    settings = StreamSettings(kind="jetstream", servers=[address], stream="team")
    assert "does not ask for TLS" in refusal(settings)
    with pytest.raises(KbprocError):
        work(
            ["nats://ann:secret@127.0.0.1:1"], {"--stream": "team"}.get, tmp_path, lambda text: None
        )
