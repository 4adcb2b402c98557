"""What operators see: counters, metrics, pages of the http port, and events about connections."""
