"""Schemas: subjects with versions, and the contracts of topics.

registry    subjects, versions, compatibility
schemas     which schema a topic is bound to, and the check of every publish
calls       intents about schemas
contracts   what a topic's policy says of one message
references  definitions that use other definitions
versions    versions in memory, found by each of their names
"""
