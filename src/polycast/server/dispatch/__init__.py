"""Handles the events of sessions: publishing, delivery, acknowledgements, subscriptions and requests."""
