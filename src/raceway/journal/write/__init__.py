"""Writing: from batches to synced blocks, and to sealed segments.

intake     the owner's side: offsets, open blocks, who waits for a commit; threaded: with outcomes of another thread
block, columns   an open block and its encoding
writer     the writer thread: write, sync, mark, one block after another
active, mark, newest    the segment being written; the files `committed` and `trimmed`; the file `newest`
sealer, seal, staging   closed segments to Parquet, in a child process
upkeep, retention, watch   what is done now and then: sealing, dropping, checking folder and space
blanking   deletion of the content of rows
"""
