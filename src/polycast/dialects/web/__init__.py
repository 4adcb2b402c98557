"""The http listener: pages, and the WebSockets of dialects."""
