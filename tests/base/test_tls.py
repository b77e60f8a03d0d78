"""The certificates that clients trust are loaded once a process."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import certifi
import pytest

from kbproc.base import tls
from kbproc.engine.models import endpoint


def test_clients_load_certificates_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = ssl.create_default_context

    def note(**options: Any) -> ssl.SSLContext:
        loaded.append(options["cafile"])
        return load(**options)

    monkeypatch.setattr(ssl, "create_default_context", note)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    tls._context.cache_clear()
    for _ in range(2):
        endpoint.client().close()
    assert loaded == [certifi.where()]
    own = tmp_path / "own.pem"
    shutil.copy(certifi.where(), own)
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    endpoint.client().close()
    assert loaded == [certifi.where(), str(own)]
    assert tls.trusted(trust_env=False).verify_mode == ssl.CERT_REQUIRED
    assert loaded == [certifi.where(), str(own), certifi.where()]
