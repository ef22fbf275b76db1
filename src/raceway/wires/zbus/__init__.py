"""zbus 5: HTTP-shaped messages over TCP; queues, publish/subscribe, RPC, trackers.

codec/      bytes to intents and back; no I/O
listen/     its server side: sessions, administration, the tracker's table
dial/       connections to trackers
client/     `ZbusClient`; `TrackedClient`, over all brokers that trackers know
capture/    captured traffic as rows
wire        its record: ports, clients, capture reader, colours
settings    `[listen.zbus]`
commands    `raceway queue` and `raceway track`, and what is different when others use its client

Read `codec/receiver`, then `listen/session`.
"""
