"""Connections that the bus itself opens: to trackers, to brokers that a tracker watches."""
