"""Seneca from bytes to rows and back.

request, line, call    HTTP requests; TCP lines; one call whatever its dialect
answer, outgoing, failure   answers; the caller's side; errors
meta, custom, trk      what a message says of itself
patterns, pattern_text, text   which pattern a message matches; jsonic; values as JavaScript writes them
rows      rows of any wire to documents
"""
