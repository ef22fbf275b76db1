"""What every wire over sockets shares. Wires build on this package; it knows none of them.

codec/     bytes without sockets: HTTP/1.1, HTTP/2, gRPC, CloudEvents, length-prefixed frames
session, tcp, gate   one server connection, its transport, all connections of a wire
grpc       gRPC sessions
turn, timers, unsent   one write per peer and turn, a timer wheel, bytes the kernel still holds
sockets, certificates  binding, options, TLS
outgoing/  connections that the bus opens itself
client/    connections that client libraries open
"""
