"""The settings of access and of TLS."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting

OPTIONAL, REQUIRED = "optional", "required"


@dataclass(frozen=True, slots=True)
class AccessSettings:
    rules: list[str] = setting(["loopback may everything"], "what each identity may do; all else is forbidden")
    networks: list[str] = setting([], "who comes from where, as NAME=10.0.0.0/8; the narrowest counts")
    hosts: list[str] = setting(
        [],
        "names of the broker in HTTP requests, as HOST or HOST:PORT, beside localhost, all addresses, the name of "
        "the machine and that of the listener; '*': any name",
    )
    origins: list[str] = setting(
        [], "other sites whose pages may use the http port, as https://HOST[:PORT]; '*': all sites"
    )
    connection_messages: float = setting(0.0, "messages a second that one connection may publish; 0: any", low=0)
    connection_bytes: float = setting(0.0, "bytes a second that one connection may publish; 0: any", low=0)
    identity_messages: float = setting(0.0, "messages a second that one identity may publish; 0: any", low=0)
    identity_bytes: float = setting(0.0, "bytes a second that one identity may publish; 0: any", low=0)

    @property
    def paced(self) -> bool:
        rates = (self.connection_messages, self.connection_bytes, self.identity_messages, self.identity_bytes)
        return any(rates)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    certificate: str = setting("", "file with the certificate (PEM), and those between it and the root")
    key: str = setting("", "file with its private key; empty: it is in the file of the certificate")
    client_ca: str = setting("", "file with the authorities whose client certificates are believed")
    client_certificates: str = setting(
        OPTIONAL,
        "whether clients must show a certificate, where there is a client_ca",
        choices=(OPTIONAL, REQUIRED),
    )
    ca: str = setting("", "file with the authorities to believe where the broker dials; empty: the system's")
    dial_certificate: str = setting("", "file with the certificate (PEM) that the broker shows where it dials")
    dial_key: str = setting("", "file with its private key; empty: it is in the file of dial_certificate")
