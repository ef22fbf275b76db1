"""What wires may look at, by subject: rows of names, counts and flags, no live objects.

queues   queues and their consumers
"""
