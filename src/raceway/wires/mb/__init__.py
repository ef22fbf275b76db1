"""MB Server Node: text headers and payloads over TCP (length-prefixed) and WebSocket."""
