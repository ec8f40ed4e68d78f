"""Jobs, on every store: what `app.job`, `enqueue`, `result` and `info` promise."""
