"""The log: everything accepted, in one order, as a folder of Arrow and Parquet files."""
