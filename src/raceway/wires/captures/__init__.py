"""What the readers of captured traffic share (pyarrow, no Spark).

capture   files of captures, found by name and known by content
pieces    a capture cut into pieces that workers parse
lines     captures that are text
slices, parsed, verdicts, batches   many messages at a time: where they are, what they say, which are malformed
"""
