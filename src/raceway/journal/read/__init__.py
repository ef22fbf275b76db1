"""Reading rows, by position or by topic.

reader     a journal from another process
reading    the part that every engine shares
catalogue  the segments of a folder in order
segment, blocks, rows   a segment of blocks, one block, its columns
sealed     a sealed segment (Parquet)
index      where the rows of a segment lie
"""
