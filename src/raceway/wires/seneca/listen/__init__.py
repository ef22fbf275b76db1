"""Seneca's server side.

session    the gate: documents to requests and publishes
http, tcp  its two transports
calls, names, repeats   one call; its topic; repeats of a call
"""
