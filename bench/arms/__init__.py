"""The competitors: one file each, run in the environment of the peer, driven by bench/arm.py."""
