"""Runs pipelines.

definition      a pipeline, and one run of it
settings        `--set KEY=VALUE`
runner          checks, session, query, graceful stop
checkpoint      offsets in a query's checkpoint
progress        progress of a query, from Spark's listener
lag_reporter    reports the position of a query to the broker
worker_tasks    reads the log and the lake inside Spark's workers
"""
