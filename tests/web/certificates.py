"""Certificates in files, and the web configuration that names them."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme

TLS = """tls_server_config:
  cert_file: server.crt
  key_file: server.key
"""


def write_server_certificate(ca: trustme.CA, folder: Path) -> int:
    """Put a new certificate and its key in place, as a rotation does; returns its serial number."""
    issued = ca.issue_cert("127.0.0.1", "localhost")
    for name, content in (
        ("server.crt", b"".join(blob.bytes() for blob in issued.cert_chain_pems)),
        ("server.key", issued.private_key_pem.bytes()),
    ):
        fresh = folder / (name + ".new")
        fresh.write_bytes(content)
        fresh.replace(folder / name)
    return serial_number(issued.cert_chain_pems[0].bytes())


def serial_number(pem: bytes) -> int:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).serial_number


def client_context(ca: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context
