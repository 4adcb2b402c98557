"""Broker, Spark and demo as one: each is a process of its own, started, watched and restarted from here.

life        what a part is doing, and when it is started again: rules without a process
child       one process: its words, its end, and nothing left of it afterwards
tied        what a child runs in: it ends when whoever started it is gone
parts       which parts there are, and how each is started
supervisor  keeps all of them going, and stops them in order
figures     what the broker says about itself
lines       for a pipe;   display   for a terminal
"""
