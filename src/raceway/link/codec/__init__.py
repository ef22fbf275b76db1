"""Bytes of the link.

frames    length, type, body; a reader that is fed whatever was received
parts     batches and errors, as parts of a body
bodies    what each type of frame carries
intents   intents and their outcomes
"""
