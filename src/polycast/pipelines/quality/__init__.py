"""Finds problems in the messages of each topic.

pipeline       processes batches, stores the state, publishes reports
inspection     inspects messages in Spark's workers
json_shapes    fields and types of JSON values
findings       merges inspections into the state of each topic
page, charts   the HTML report
"""
