"""Schemas: subjects with versions, and the contracts of topics.

registry    subjects, versions, compatibility
schemas     which schema a topic is bound to, the check of every publish, and the intents about schemas
contracts   what a topic's policy says of one message
references  definitions that use other definitions
versions    versions in memory, found by each of their names
"""
