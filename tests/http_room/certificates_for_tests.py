"""Certificates made for a run: an authority, and servers that it vouches for."""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_PEM = serialization.Encoding.PEM


@dataclass
class Authority:
    """Vouches for others; its own certificate is at `path`."""

    folder: Path

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("The authority of a test")
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=400))
            .not_valid_after(now + timedelta(days=4000))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path = str(self.folder / "authority.pem")
        Path(self.path).write_bytes(made.public_bytes(_PEM))
        self._with_key = self.folder / "authority-and-key.pem"
        self._with_key.write_bytes(_secret(self._key) + made.public_bytes(_PEM))

    def vouch(self, host: str, *, days: float, since_days: float = 300) -> str:
        """Make a certificate that expires in so many days; returns the path of it and its key."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(host))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=since_days))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self.folder / f"{host}-{days}-{since_days}.pem"
        path.write_bytes(_secret(key) + made.public_bytes(_PEM))
        return str(path)

    def serving_itself(self) -> ssl.SSLContext:
        """The context of a server that only its own certificate vouches for."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._with_key)
        return context

    def serving(self, host: str, *, days: float, client_ca: str | None = None) -> ssl.SSLContext:
        """The context of a server; with `client_ca` it wants a certificate of the client."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.vouch(host, days=days))
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_ca)
        return context


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
