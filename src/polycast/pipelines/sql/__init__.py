"""SQL over topics: `query` reads what the log has, `following` streams, `gate` decides what may run."""
