"""Archive of the journal: sealed segments on another disk or in an object store, from where they can be read.

Read in this order:
  store     the place, by URL: a folder, or objects in a bucket
  lease     who may write there, and which positions may have been given out
  ledger    the local folder `archive`: which segments are there, and copies that were brought back
  copying   the thread that copies sealed segments, proves the copies and tells how far it is
  files     reading objects as files, in pieces
  segment   a segment whose rows are in the archive
  reader    the archive alone as a journal, for readers that share no folder with the bus
  restore   a data folder from an archive
  blanking  deletion of the content of rows
"""
