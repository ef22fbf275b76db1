"""Danube's server side: services on the gRPC door.

server, gate       the wire: its ports; its services joined
session            connections and their peers
calls              one call: decode, authorize, answer
clients, messages   topics, producers, consumers; sends, streams, acknowledgements
admin, registry, security   administration
grpc_services   health and reflection
"""
