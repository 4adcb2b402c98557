"""Demo traffic in all five dialects.

generators    the messages: pure functions of a random source and a tick
demo_clients  publishers, subscribers, a requester and a responder; each reconnects when the broker restarts

python -m polycast.demo NAME=ADDRESS...      the listeners of a broker; dialects without a listener are left out
"""
