"""Questions about rows: of the console, the command line and traces.

search   rows by filter, newest first, with a bound on the work
traces   all rows of a trace
flows    who talks to whom, from the last rows
inspect  what is in a folder, and rows as documents
"""
