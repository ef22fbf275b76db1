"""Calls to attached services.

services, service   all attached services; the link to one
line_link  calls over one connection of lines
pins      services as the broker's responders
returns   answers to the addresses that callers name
address   addresses as people write them
"""
