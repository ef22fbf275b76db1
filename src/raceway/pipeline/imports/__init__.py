"""Captured traffic into bronze: one module per wire, each with every rule of its codec.

A capture is known by the SHA-256 of its bytes: that is its `source`, so the same file is imported once, whatever its
name. `sequence` counts the messages of the file, good and bad ones together.

    capture   files by name, folder or glob                 pieces    cut in the driver, parsed by Spark's workers
    slices    many parts of a run of bytes at a time        parsed    what a parser says, and the rows of it
    mb, zbus, seneca, danube                                importing all of it, for one file
"""
