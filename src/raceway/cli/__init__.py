"""The command line: one file per group of commands. Heavy imports are inside the commands, so that `--help` is fast.

app          all commands, and how an error ends one
options      options that commands share, as records: where the bus is, the token, how to print
output       tables, JSON, notes, progress, exit statuses
bus          finding a bus, and calling its console port
serve        `serve`, `up` and `track`; every other file is named after its commands

Read `options`, then a short group: `seneca`.
"""
