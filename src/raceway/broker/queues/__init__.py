"""Queues: rows of a topic in offset order, each to one consumer.

calls     what peers ask of queues, and whether a message is an answer
access    tokens and permissions
table     all queues: create, find, restore their cursors
queue     one queue and the consumers that wait on it
pubsub    publish/subscribe queues: each message to every subscriber of its tag
listing   queues and consumers as rows
consumer  peers that consume, and what they are delivered
"""
