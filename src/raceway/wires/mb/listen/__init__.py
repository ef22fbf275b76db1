"""MB's server side.

session    a connection: events to the broker, replies back
peer       its client, as the broker sees it: copies, requests, answers, audit
websocket  MB over WebSocket
rates      rate limits per service and topic
"""
