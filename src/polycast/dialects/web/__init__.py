"""The http port: pages, and the WebSockets that some dialects travel over."""
