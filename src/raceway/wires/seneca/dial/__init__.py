"""Calls to attached services.

services, service   all attached services; the line to one
pins      services as the broker's responders
returns   answers to the addresses that callers name
address   addresses as people write them
"""
