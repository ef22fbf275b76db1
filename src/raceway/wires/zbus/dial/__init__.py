"""Connections to trackers: `reporter` tells a tracker about this bus, `prober` drops brokers that are gone."""
