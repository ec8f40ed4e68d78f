"""How databases are reached: addresses, connections that reconnect by themselves, and what their errors mean.

Nothing here knows a table. Stores and adopted tables are built on it.
"""
