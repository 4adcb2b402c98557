"""SQL over topics.

statement       the query text and its views
gate            checks the parsed plan; `allowed` has the lists, `size_limits` the limits
batch_query     runs a query over the log
stream_query    runs a query as a stream, with `--into` or `--to`
query_errors    Spark's errors, with the query text marked
"""
