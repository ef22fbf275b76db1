"""MB's client.

client        `MbClient`
link, messages, calls    frames over TCP or WebSocket; messages written and read; how answers refuse
services, subscription   answering requests; iterating over messages
"""
