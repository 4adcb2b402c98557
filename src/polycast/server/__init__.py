"""The broker on a machine: sockets, queues, time and configuration around the rules."""

from polycast.server.config import Loaded, load
from polycast.server.run import serve
from polycast.server.server import Server
from polycast.server.settings import Settings

__all__ = ["Loaded", "Server", "Settings", "load", "serve"]
