"""The store in this process's memory: for tests and for trying things out. Nothing survives the process."""

from everpoll.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
