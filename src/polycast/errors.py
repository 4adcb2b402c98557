"""The tree of errors.

    PolycastError
    ├── UsageError            an invalid flag, setting or pattern                           exit code 2
    ├── StartError            a port, a folder or a program is not available                exit code 1
    ├── LogDamageError        a file of the log differs from what was written               exit code 1
    ├── GoneError             the requested messages are no longer, or not yet, in the log
    ├── RemoteError           the broker is unreachable, or closed the connection           exit code 1
    │   └── RefusedError          the broker refused the request
    └── PeerError             caused by the peer; closes its connection
        ├── ProtocolError         the input violates the dialect's grammar
        ├── LimitError            the input exceeds a limit
        ├── HttpPeerError         an HTTP request at a listener of another dialect
        ├── TlsPeerError          a TLS handshake at a listener without TLS
        ├── TimeoutPeerError      the peer exceeded a time limit
        └── ForbiddenError        the peer has no right to do this

A message gives the value, the limit and the cure. `hint` is a command or setting to type.
"""


class PolycastError(Exception):
    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(PolycastError):
    exit_code = 2


class StartError(PolycastError):
    pass


class LogDamageError(PolycastError):
    pass


class GoneError(PolycastError):
    pass


class RemoteError(PolycastError):
    pass


class RefusedError(RemoteError):
    """`code`: the error code that the broker sent."""

    def __init__(self, message: str, code: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


class PeerError(PolycastError):
    """`kind`: the label in `polycast_connections_closed_total`."""

    kind = "peer"


class ProtocolError(PeerError):
    kind = "protocol"


class LimitError(PeerError):
    kind = "limit"

    def __init__(self, what: str, size: int, limit: int, setting: str) -> None:
        super().__init__(f"{what} of {size:,} exceeds the limit of {limit:,}; raise {setting} to accept it")


class HttpPeerError(PeerError):
    """A defence: web pages can make browsers send HTTP requests with messages in the body to any port."""

    kind = "http"

    def __init__(self, line: bytes, http: str) -> None:
        cure = (
            f"the http listener is at {http}"
            if http
            else "--listen http=tcp://HOST:PORT opens a listener for HTTP"
        )
        super().__init__(f"the first line is an HTTP request: {line.decode(errors='replace')!r}; {cure}")


class TlsPeerError(PeerError):
    kind = "tls"

    def __init__(self) -> None:
        super().__init__(
            "TLS handshake at a listener without TLS; --listen NAME=tls://HOST:PORT opens one with TLS"
        )


class TimeoutPeerError(PeerError):
    kind = "timeout"


class ForbiddenError(PeerError):
    """The text gives no detail: it must not reveal which topics, routes or rules exist."""

    kind = "forbidden"

    def __init__(self) -> None:
        super().__init__("Forbidden")
