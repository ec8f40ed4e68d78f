"""Names and words of the user's in SQL: always quoted, never formatted."""


def identifier(name: str) -> str:
    """Quote the name of a column, a table or a schema. It may have any character."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text so that it means the same under every setting of the server, backslashes included."""
    quoted = text.replace("'", "''")
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quoted}'"
