"""Background work on the log: sealing, retention, snapshots and free disk space."""
