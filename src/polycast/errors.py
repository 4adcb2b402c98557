"""The tree of errors.

    PolycastError
    ├── UsageError            an invalid flag, setting or pattern                           exit code 2
    ├── StartError            a port, a folder or a program is not available                exit code 1
    ├── ClusterError          a node cannot go on: its stream or its log differs from others     exit code 1
    │   └── DivergedError         its table differs from that of the majority                exit code 3
    ├── LogDamageError        a file of the log differs from what was written               exit code 1
    │   └── LogVersionError       a newer version of Polycast wrote the log
    ├── BackupError           a backup cannot be written, or is not whole                   exit code 1
    ├── GoneError             the requested messages are no longer, or not yet, in the log
    ├── RemoteError           the broker is unreachable, or closed the connection           exit code 1
    │   ├── RefusedError          the broker refused the request
    │   └── ReplyTimeoutError     nothing arrived in time; also a TimeoutError of Python
    └── PeerError             caused by the peer; closes its connection
        ├── ProtocolError         the input violates the dialect's grammar
        │   ├── HttpStatusError       a server refused an HTTP request with a status
        │   └── BehindError           a position that this node of a cluster has not reached yet
        ├── LimitError            the input exceeds a limit
        ├── HttpPeerError         an HTTP request at a listener of another dialect
        ├── HermodPeerError       a client of hermod at a listener of another dialect
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


class ClusterError(PolycastError):
    pass


class DivergedError(ClusterError):
    """An exit code of its own, so that supervisors do not start the node again."""

    exit_code = 3


class LogDamageError(PolycastError):
    pass


class LogVersionError(LogDamageError):
    """Of one file in a log of this version, it is damage: the head of a hot segment has no checksum."""

    def __init__(self, where: object, version: int, known: int) -> None:
        text = f"{where} was written by a newer version of Polycast: {version}, this one reads {known}"
        super().__init__(text, "start that version, or a newer one; --data DIR takes another folder")
        self.version, self.known = version, known


class BackupError(PolycastError):
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


class ReplyTimeoutError(RemoteError, TimeoutError):
    pass


class PeerError(PolycastError):
    """`kind`: the label in `polycast_connections_closed_total`."""

    kind = "peer"


class ProtocolError(PeerError):
    kind = "protocol"


class HttpStatusError(ProtocolError):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


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


class HermodPeerError(PeerError):
    """The peer gets it as a reply in hermod: it would wait for one."""

    kind = "hermod"
    code = 421

    def __init__(self) -> None:
        super().__init__("the first line is a header of hermod, and this listener is of another dialect")


class TlsPeerError(PeerError):
    kind = "tls"

    def __init__(self) -> None:
        super().__init__(
            "TLS handshake at a listener without TLS; --listen NAME=tls://HOST:PORT opens one with TLS"
        )


class BehindError(ProtocolError):
    """A position that another node of the cluster may have reached."""


class TimeoutPeerError(PeerError):
    kind = "timeout"


class ForbiddenError(PeerError):
    """The text gives no detail: it must not reveal which topics, routes or rules exist."""

    kind = "forbidden"

    def __init__(self) -> None:
        super().__init__("Forbidden")
