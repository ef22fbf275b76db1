"""MB Server Node: text headers and payloads over TCP (length-prefixed) and WebSocket.

codec/      bytes to intents and back; no I/O
listen/     its server side: sessions over TCP and WebSocket
client/     `MbClient`
capture/    captured traffic as rows
wire        its record: ports, client, capture reader, colours
settings    `[listen.mb]`
commands    what is different when commands use its client

Read `codec/receiver`, then `listen/session`.
"""
