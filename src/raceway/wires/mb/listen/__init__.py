"""MB's server side.

server     the wire: its four ports
session    a connection: events to the broker, replies back
peer       its client, as the broker sees it: copies, requests, answers, audit
tcp, websocket   MB over TCP; over WebSocket
rates      rate limits per service and topic
"""
