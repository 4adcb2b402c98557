"""The log: every accepted message, in one order, as a folder of Arrow and Parquet files.

Imports point down:

    log                         append, durability announcements, recent messages in memory
    upkeep                      housekeeping: snapshots, sealing, retention
    repair                      recovery, salvage, verification
    write | read                group commit; queries, seeking, replay
    settings
    files                       file formats and the folder
    batch_ids | durable         plain data, without pyarrow
    times

Other packages use `log`, `settings`, `batch_ids`, `durable`, `times`, `write.bulk`, `write.entry`,
`upkeep.sealing`, `repair.verify`, all of `files` except `damage` and `snapshot`, and all of `read` except
`segment_sources` and `snapshot_delta`. The rest is private.
"""
