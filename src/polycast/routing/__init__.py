"""Routing: the pattern index, interned audiences, and the table of topics."""

from polycast.routing.audience import Audience, Subscriber, are_disjoint
from polycast.routing.index import PatternIndex
from polycast.routing.router import Router
from polycast.routing.runs import Topic, group
from polycast.routing.topics import Topics

__all__ = ["Audience", "PatternIndex", "Router", "Subscriber", "Topic", "Topics", "are_disjoint", "group"]
