"""Raceway: one durable message bus for four wire protocols. See `docs/` for the manual.

errors, model/, config/, chance   vocabulary: the error tree, rows and intents, settings, random numbers
journal/, kafka/                  every message as a row on disk, or on Apache Kafka
schema/                           definitions, payloads against them, versions against each other
net/                              what every wire over sockets shares
broker/, link/                    the bus behind one door; the same door from another process
wires/                            the wires, a room each
web/, telemetry/                  the console port; traces for a collector
client/, testing                  `connect()`; a bus for tests of programs
server/, cluster/                 the process that runs a bus; nodes that take over from one another
pipeline/, spark, mirror/         processes of their own: tables, a session for notebooks, copies to and from Kafka
demo/, cli/, __main__             the airport of `raceway demo`; the commands

Read `model/`, `broker/` and one room of `wires/` first. `CONTRIBUTING.md` has ten files to begin with.
"""

__version__ = "0.1.0"
