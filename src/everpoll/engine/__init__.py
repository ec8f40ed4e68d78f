"""The engine room: what runs the user's functions. Imports policy and errors; never a front such as loops."""
