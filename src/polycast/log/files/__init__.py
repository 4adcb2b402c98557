"""The log's files: their formats, names, permissions, and the system calls behind them."""
