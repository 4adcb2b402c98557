"""Archives topics to a lake of Parquet files.

pipeline      processes batches: plans, stages, commits, compacts
files         writes staged files in Spark's workers
lake          the lake's folder and its commit protocol
compaction    merges small files
"""
