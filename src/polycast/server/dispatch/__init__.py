"""What happens to a session's events: publishing, delivery, acknowledgements, subscriptions and requests."""
