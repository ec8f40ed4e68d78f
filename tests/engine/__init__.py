"""The engine: lease, run, settle. In virtual time on a memory store, and the heartbeat's thread in real time."""
