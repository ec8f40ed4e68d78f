"""The kinds of tasks of this package. It imports nothing, because processes without services load it, too."""

CHECK_KIND, INCIDENT_KIND, MAILBOX_KIND = "check", "incident", "mailbox"
