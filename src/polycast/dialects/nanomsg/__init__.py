"""The dialect `nanomsg`: SP sockets over tcp, ipc and WebSocket. `session` has the grammar."""
