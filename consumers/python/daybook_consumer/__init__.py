"""A consumer of Daybook's bus: applies each message exactly once, in the order of its aggregate."""

from .consumer import Consumer
from .table import Rows

__all__ = ["Consumer", "Rows"]
