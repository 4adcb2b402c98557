"""The settings of access and of TLS."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting

OPTIONAL, REQUIRED = "optional", "required"


@dataclass(frozen=True, slots=True)
class AccessSettings:
    rules: list[str] = setting(
        ["loopback may everything"], "what each identity may do; everything else is forbidden"
    )
    networks: list[str] = setting(
        [], "identities by source network, as NAME=10.0.0.0/8; the narrowest network takes precedence"
    )
    hosts: list[str] = setting(
        [],
        "names of the broker in HTTP requests, as HOST or HOST:PORT, besides localhost, IP addresses, the host "
        "name of the machine and the host of the listener; '*': any name",
    )
    origins: list[str] = setting(
        [], "other sites whose pages may use the http listener, as https://HOST[:PORT]; '*': all sites"
    )
    connection_messages: float = setting(
        0.0, "messages a second that one connection may publish; 0: unlimited", low=0
    )
    connection_bytes: float = setting(0.0, "bytes a second that one connection may publish; 0: unlimited", low=0)
    identity_messages: float = setting(0.0, "messages a second that one identity may publish; 0: unlimited", low=0)
    identity_bytes: float = setting(0.0, "bytes a second that one identity may publish; 0: unlimited", low=0)

    @property
    def paced(self) -> bool:
        rates = (self.connection_messages, self.connection_bytes, self.identity_messages, self.identity_bytes)
        return any(rates)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    certificate: str = setting("", "file with the certificate and its intermediates (PEM)")
    key: str = setting("", "file with the private key; empty: the certificate file has it")
    client_ca: str = setting("", "file with the authorities that sign client certificates")
    client_certificates: str = setting(
        OPTIONAL,
        "whether clients must present a certificate, if client_ca is set",
        choices=(OPTIONAL, REQUIRED),
    )
    ca: str = setting("", "file with the authorities to trust when dialling; empty: those of the system")
    dial_certificate: str = setting("", "file with the certificate (PEM) that the broker presents when dialling")
    dial_key: str = setting("", "file with its private key; empty: the dial_certificate file has it")
