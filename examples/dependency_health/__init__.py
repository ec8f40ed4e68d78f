"""Sixteen services in all formats on this machine, and a monitor that tells how they are."""
