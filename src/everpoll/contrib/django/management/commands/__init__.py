"""Where Django looks for `manage.py everpoll`."""
