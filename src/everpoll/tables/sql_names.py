"""Names and words of the user's in SQL: always quoted, never formatted."""


def identifier(name: str) -> str:
    """A name of a column, a table or a schema, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text; with a backslash in it, so that it means the same under every setting of the server."""
    quoted = text.replace("'", "''")
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quoted}'"
