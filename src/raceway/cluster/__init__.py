"""A bus of several nodes whose journal is on Kafka: one serves, the others wait to take over.

place       the cluster that a URL names; make it, open its lane
topics      what its Kafka topics must be, and what is wrong with them
ownership   which node should own the lane, by a consumer group
status      who owns it, how far it is, and the health of Kafka
"""
