"""The dialect `nanomsg`: SP sockets over tcp, ipc and WebSocket. `sessions` tells the whole of it."""
