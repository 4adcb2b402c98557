"""Detects topics with an unusual message rate.

pipeline     counts messages per topic and window, keeps state per topic, publishes alerts
anomalies    compares the rate of a window with the topic's history
"""
