"""Transforms of the pipeline: one file per table, from rows of its inputs to rows of the table.

messages, hops, exchanges, rejected       one row for each message, hop, request and refused message
traces, beginnings, trees, forest         all messages that one led to: where they begin, and their trees
topic_stats, service_graph, schema_usage  figures by minute or hour; `counting` is what they share
values, json_text                         payloads by their schemas; whether a text is JSON

Read `hops` first.
"""
