"""Seneca's server side.

server     the wire: callers, and the services that the bus calls
session    the gate: documents to requests and publishes
http, tcp  its two transports
calls, names, repeats   one call; its topic; repeats of a call
routes     attached services, over the console port
"""
