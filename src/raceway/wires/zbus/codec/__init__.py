"""zbus from bytes to intents and back.

receiver  bytes in, events out (server); client: the client's side
stream, head, shapes   cutting a stream into messages; one head; heads known by their shape
rows, encode, admin    columns of a run of messages; what the bus writes; bodies of administration
"""
