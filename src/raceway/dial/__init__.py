"""Outgoing connections of the bus: to trackers, to the brokers a tracker watches, and to Seneca services."""
