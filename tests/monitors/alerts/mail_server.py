"""A small SMTP server on loopback: it keeps what it is told, and answers as a test tells it to."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass
class MailServer:
    port: int = 0
    tls: ssl.SSLContext | None = None
    is_encrypted: bool = False
    """From the first byte on."""
    said: list[str] = field(default_factory=list)
    """Commands, in order; of AUTH PLAIN the decoded credentials."""
    mails: list[bytes] = field(default_factory=list)
    replies: dict[str, str | None] = field(default_factory=dict)
    """By command; None: hang up. "content" is what follows DATA, "hello" the greeting."""
    is_silent_after: str = ""
    """Never answers this command, nor anything after it."""

    @property
    def mail(self) -> EmailMessage:
        [mail] = self.mails
        read = message_from_bytes(mail, policy=policy.default)
        assert isinstance(read, EmailMessage)
        return read

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._reply(writer, "hello", "220 ready")
        while line := (await reader.readline()).decode().rstrip("\r\n"):
            command = line.split(" ")[0].upper()
            self.said.append(line)
            if command == "AUTH":
                self.said[-1] = base64.b64decode(line.split(" ")[2]).decode()
                await self._reply(writer, command, "235 welcome")
            elif command == "EHLO":
                offers = "" if self.tls is None or self.is_encrypted else "250-STARTTLS\r\n"
                await self._reply(writer, command, f"250-here\r\n{offers}250 AUTH PLAIN")
            elif command == "STARTTLS":
                await self._reply(writer, command, "220 go ahead")
                assert self.tls is not None
                await writer.start_tls(self.tls)
            elif command == "DATA":
                await self._reply(writer, command, "354 go on")
                content = (await reader.readuntil(b"\r\n.\r\n"))[:-5]
                self.mails.append(content.replace(b"\r\n..", b"\r\n."))
                await self._reply(writer, "content", "250 taken")
            elif command == "QUIT":
                await self._reply(writer, command, "221 bye")
                return
            else:
                await self._reply(writer, line.upper(), self.replies.get(line.split(":")[0].upper(), "250 fine"))

    async def _reply(self, writer: asyncio.StreamWriter, command: str, usual: str | None) -> None:
        if self.is_silent_after and command.startswith(self.is_silent_after):
            await asyncio.Event().wait()
        reply = self.replies.get(command, usual)
        if reply is None:
            raise ConnectionAbortedError
        writer.write(f"{reply}\r\n".encode())
        await writer.drain()
        if command == "DATA" and not reply.startswith("354"):
            raise ConnectionAbortedError


@asynccontextmanager
async def mail_server(tls: ssl.SSLContext | None = None, *, is_encrypted: bool = False) -> AsyncIterator[MailServer]:
    server = MailServer(tls=tls, is_encrypted=is_encrypted)
    talking: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        await server.serve(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls if is_encrypted else None)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        await listening.wait_closed()


def certificate_for(host: str, folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate of its own, and the path of that certificate."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=100))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    both, alone = folder / "both.pem", folder / "certificate.pem"
    both.write_bytes(secret + made.public_bytes(pem))
    alone.write_bytes(made.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, str(alone)
