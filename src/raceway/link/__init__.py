"""The link: carries intents, outcomes and messages of the door between the process of the wires and that of a broker.

codec/       frames, and what is in them; pure
sockets      the Unix sockets that it goes over
connection   one connection, at either end: frames in, frames out once per turn
gathered     frames that grow while nothing else is sent
caller       the end of the wires: performs intents of its peers at the other end
known        what a caller knows of its peers
guarding     calls of peers and callbacks that may fail
edge         the end of the wires over several lanes, with a caller for each
splitting    which lanes perform which part of an intent
joining      outcomes of intents that are performed in parts
door         the edge as a door, for the wires
totals       metrics of all lanes together
lane         the end of the broker: performs what the callers of its socket ask
peers        peers of callers, as the broker sees them
streams      streams of consumers, at both ends
"""
