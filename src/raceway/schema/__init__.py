"""Schemas: definitions read once, payloads checked against them, versions compared. Pure: no sockets, no clocks."""
