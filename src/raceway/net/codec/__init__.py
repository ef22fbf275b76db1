"""Protocols below the wires, as pure functions of bytes: no socket, no clock.

http_stream, http_message, percent   HTTP/1.1 (RFC 9112); messages in its requests; percent-encoding
http2, http2_frames, http2_heads, http2_streams, http2_output   HTTP/2 (RFC 9113)
grpc, grpc_head, grpc_client         gRPC over HTTP/2, both sides
frames                               frames behind a length
cloudevents, message_documents       CloudEvents 1.0 over HTTP; messages as JSON documents
event_stream                         server-sent events
"""
