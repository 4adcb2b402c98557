"""nanomsg's PUB and SUB sockets for Python. They need no broker, and interoperate with nanomsg and nng.

with Socket(SUB) as sub:
    sub.subscribe(b"foo")
    sub.connect("tcp://127.0.0.1:5550")
    print(sub.recv())
"""

from polycast.nanomsg.sessions import Kind
from polycast.nanomsg.socket import Socket

PUB, SUB = Kind.PUB, Kind.SUB

__all__ = ["PUB", "SUB", "Kind", "Socket"]
