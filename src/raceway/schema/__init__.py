"""Schemas: parse definitions, validate payloads, compare versions. Pure: no sockets, no clocks."""
