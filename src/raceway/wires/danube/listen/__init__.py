"""Danube's server side: services on the gRPC door.

gate       the wire: its services joined
calls      one call: decode, authorize, answer
clients, messages   topics, producers, consumers; sends, streams, acknowledgements
admin, registry, security   administration
grpc_services   health and reflection
"""
