"""Deliveries: which subscribers should have received which messages.

pipeline                counts deliveries per topic
subscription_history    subscriptions over time, from the broker's events
matching                matches messages with subscriptions, in columns
receivers               the receivers of one message, for `polycast why`
volume                  the messages and bytes of a pattern, for `polycast estimate`
"""
