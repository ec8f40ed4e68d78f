"""The kinds of tasks that this room has. Imports nothing: processes without services load it, too."""

CHECK_KIND, INCIDENT_KIND, MAILBOX_KIND = "check", "incident", "mailbox"
