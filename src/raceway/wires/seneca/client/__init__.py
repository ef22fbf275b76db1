"""Seneca's client.

client    `SenecaClient`
actions, host, attach   a service: its actions, where it listens, attaching it to a bus
flow, ways, returns     a message being handled; how messages leave; late answers
http_door               the sockets that services and late answers come to
"""
