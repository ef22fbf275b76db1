"""What the readers of captured traffic share (pyarrow, no Spark).

capture, form    files of captures, found by name and known by content; what a wire's reader gives
columns          columns of the bronze tables
lines            captures that are text
slices, parsed, verdicts, batches   many messages at a time: where they are, what they say, which are malformed
"""
