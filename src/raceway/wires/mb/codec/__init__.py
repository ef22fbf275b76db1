"""MB from bytes to intents and back.

receiver  bytes in, events out (server); inbox: the client's side
header, rows, calls   one header; ordinary messages as columns; calls to system topics
encode, system, audit   what the bus writes
websocket  frames of a WebSocket client
"""
