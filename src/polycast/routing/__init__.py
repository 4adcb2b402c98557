"""Who gets what: the pattern index, interned audiences, and the topics that were seen."""

from polycast.routing.audience import Audience, Subscriber, are_disjoint
from polycast.routing.router import Router
from polycast.routing.topics import Topic

__all__ = ["Audience", "Router", "Subscriber", "Topic", "are_disjoint"]
