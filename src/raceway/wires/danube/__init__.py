"""Danube: gRPC services for topics, producers, consumers, schemas and administration."""
