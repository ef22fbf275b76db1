"""Protocols below the wires, as pure functions of bytes: no socket, no clock.

http2*, http_stream, http_message   HTTP/2 (RFC 9113) and HTTP/1.1 (RFC 9112)
grpc, grpc_head, grpc_client        gRPC over HTTP/2, both sides
frames        frames behind a length
cloudevents   CloudEvents 1.0 over HTTP
"""
