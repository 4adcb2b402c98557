"""`polycast up`: broker, Spark and demo as supervised processes.

lifecycle     the state of a part and its restart rules; no process, no clock
child         one process: its output, its exit, and no survivors in its process group
parent_death  runs inside a child: the child ends when the supervisor ends
parts         the parts, and the command line of each
supervisor    starts and restarts the parts, and stops them in order
stats_poller  the broker's statistics
line_output   output for a pipe;   display   for a terminal
"""
