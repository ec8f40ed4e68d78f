"""Services through the whole stack: app, worker, looks, records."""
