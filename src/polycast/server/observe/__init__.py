"""What operators see: counters, metrics, pages of the http listener, and events about connections."""
