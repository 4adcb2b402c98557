"""Small blocking clients, one for each dialect: what the CLI and scripts talk to a broker with."""

from polycast.client.base import Client
from polycast.client.connect import DIALECTS, connect

__all__ = ["DIALECTS", "Client", "connect"]
