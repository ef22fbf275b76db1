"""Import of captured traffic into bronze. Each wire has its own reader, with every rule of its codec.

A capture is identified by the SHA-256 of its bytes: that is its `source`, so the same file is imported once, whatever
its name. `sequence` counts the messages of the file, good and bad ones together.

    capture     files by name, folder or pattern           slices     many parts of a run of bytes at a time
    pieces      cut in the driver, parsed by workers       verdicts   which rule a message breaks first
    importing   one file, all of it or nothing             parsed     results of a parser, and the rows of it
    chains      answers to requests, within a file         batches    columns of a codec as columns of bronze
"""
