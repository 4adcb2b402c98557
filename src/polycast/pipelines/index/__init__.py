"""An index over payloads, and the search that uses it.

pipeline    builds filters for new blocks of the log
blocks      the index on disk
grams       filters over payloads
search      `polycast find`
"""
