"""Connections that the bus opens: to services, trackers, collectors.

allowed    the list of addresses it may connect to
http_pool  HTTP calls over kept connections
link       a connection that only sends
courier    deliver with retries, in order per receiver
"""
