"""What one broker process takes: each dimension measured at growing sizes, up to where the cost bends.

    python -m polycast.bench.scale [--out DIR] [--seconds S] [--only NAME]...

what is measured   series (the names and sizes), broker_process, file_limit
how                throughput, subscriptions, topic_tables, connections, idle_connections (a process of its own),
                   cycle (one message on each topic)
the result         points, scale_table, scale_plot
"""
