"""MB's server side.

session    a connection: events to the broker, deliveries back
websocket  MB over WebSocket
rates      rate limits per service and topic
"""
