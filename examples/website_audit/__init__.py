"""An audit service: addresses in a table of one's own, fetched and scored by workers."""
