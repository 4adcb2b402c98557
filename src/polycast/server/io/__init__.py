"""Sockets and memory: listeners, connections, TLS, receive buffers, connection slots and outbound dialling."""
