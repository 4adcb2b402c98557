"""Traffic statistics per topic, dialect and time window.

pipeline    aggregates counts, publishes and stores windows
counts      partial aggregates, computed in Spark's workers
windows     Parquet files of windows, updated in place
"""
