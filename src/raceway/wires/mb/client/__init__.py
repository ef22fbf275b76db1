"""MB's client.

client        `MbClient`
services, subscription   answering requests; iterating over messages
"""
