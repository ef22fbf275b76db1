"""Finding, mending and telling damage.

checksum, stripes   CRC-32C per 64 KiB stripe, and the single flipped bit it can find again
recovery   from a folder after a crash to a journal that goes on
holes      positions that should be there and are not
scan, salvage, repair   the good blocks and rows of a damaged file
damage     what was found, each thing once
verify     `raceway journal verify`
"""
