"""Run the user's program and see its kernels. :class:`Observer` is the client side; nothing here imports JAX."""

from mgpu_fix.observe.client import Observer, ObserverError, Program
from mgpu_fix.observe.command import Command, CommandError

__all__ = ["Command", "CommandError", "Observer", "ObserverError", "Program"]
