"""The dialect `ubre`: publications and requests, in JSON or binary. `sessions` tells the whole of it."""
