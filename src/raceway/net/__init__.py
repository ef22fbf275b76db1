"""What every wire over sockets shares. Wires build on this package; it knows none of them.

codec/     bytes without sockets: HTTP/1.1, HTTP/2, gRPC, CloudEvents, length-prefixed frames
connection, tcp      one server connection, all connections of a wire, their transport
runtime    what all connections share: clock, turn, flow control (credits), input budget (unfinished), counters
grpc       gRPC sessions
turn, timers, unsent, ids   one write per peer and turn, a timer wheel, bytes the kernel still holds, random ids
sockets, certificates  binding, options, TLS
outgoing/  connections that the bus opens itself
client/    connections that client libraries open
"""
