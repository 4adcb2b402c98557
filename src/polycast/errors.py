"""Every error Polycast raises on purpose, in one tree.

    PolycastError
    ├── UsageError            the user's: a flag, a setting, a pattern           exit code 2
    ├── StartError            the machine's: a port, a folder, a missing program exit code 1
    ├── LogDamageError        the disk's: a file of the log is not as it was written    exit code 1
    ├── GoneError             the log's: messages that were asked for are not in it any more, or not yet
    ├── RemoteError           a broker that cannot be reached or went away       exit code 1
    │   └── RefusedError          it said that it will not take this
    └── PeerError             the peer's: it costs that peer its connection
        ├── ProtocolError         it broke the dialect's grammar
        ├── LimitError            it went past a named limit
        ├── HttpPeerError         it sent an HTTP request to a listener of another dialect
        ├── TlsPeerError          it began TLS at a listener without TLS
        ├── TimeoutPeerError      it kept us waiting
        └── ForbiddenError        it may not do that

A message says what was found, what is allowed and what to change. `hint` is that where it is a command to type.
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
    """`code` is the broker's own word for the reason."""

    def __init__(self, message: str, code: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


class PeerError(PolycastError):
    """`kind` is the word this is counted under."""

    kind = "peer"


class ProtocolError(PeerError):
    kind = "protocol"


class LimitError(PeerError):
    kind = "limit"

    def __init__(self, what: str, size: int, limit: int, setting: str) -> None:
        super().__init__(f"{what} of {size:,} exceeds the limit of {limit:,}; raise {setting} to accept it")


class HttpPeerError(PeerError):
    """A web page can make a browser send such requests anywhere, with messages in the body."""

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
        super().__init__("the peer begins TLS and this listener has none; --listen NAME=tls://HOST:PORT has it")


class TimeoutPeerError(PeerError):
    kind = "timeout"


class ForbiddenError(PeerError):
    """It says no more than that: whoever may not do something need not know what else there is."""

    kind = "forbidden"

    def __init__(self) -> None:
        super().__init__("Forbidden")
