"""Sockets to codecs to broker."""
