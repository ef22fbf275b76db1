"""Import of captured traffic into bronze. Each wire has its own reader, with every rule of its codec.

A capture is identified by the SHA-256 of its bytes: that is its `source`, so the same file is imported once, whatever
its name. `sequence` counts the messages of the file, good and bad ones together.

    sources     captures as users name them: files, folders, patterns and URLs, plain or packed
    importing   one file, all of it or nothing
    pieces      cut in the driver, parsed by workers
    chains      answers to requests, within a file
    imported    captures that are in the tables, and their removal

What the readers share is in `wires/captures`.
"""
