"""Danube: gRPC services for topics, producers, consumers, schemas and administration.

codec/      protobuf messages to rows and back; no I/O. gRPC itself is in `net`
listen/     its server side: the services
client/     `DanubeClient`
capture/    captured traffic as rows
wire        its record: ports, client, capture reader, colours
settings    `[listen.danube]`
commands    what is different when commands use its client

Read `codec/rows`, then `listen/messages`.
"""
