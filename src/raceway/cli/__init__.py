"""The command line: one file per group of commands. Heavy imports are inside the commands, so that `--help` is fast.

app          all commands, and how an error ends one
options      options that commands share, as records: where the bus is, the token, how to print
output       tables, JSON, notes, progress, exit statuses
tables       layout of tables for narrow terminals and pipes
bus          finding a bus, and calling its console port
saved_buses  the file of contexts
clients      the choice of a wire, for `pub`, `sub`, `request` and `topics`
http_door    `pub` and `sub` over the console port
talk         the same over the client of a wire
serve        `serve` and `up`; every other file is named after its commands

Wires have commands of their own (`wires/*/commands.py`). Read `options`, then a short group: `rejected`.
"""
