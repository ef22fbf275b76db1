"""The command line: one file per group of commands. Heavy imports are inside the commands, so that `--help` is fast.

app          all commands, and how an error ends one
options      options that commands share, as records: where the bus is, the token, how to print
output       tables, JSON, notes, progress, exit statuses
tables       layout of tables for narrow terminals and pipes
bus          finding a bus, and calling its console port
talk         how `pub`, `sub` and `request` use the client of a wire
serve        `serve` and `up`; every other file is named after its commands

Wires have commands of their own (`wires/*/commands.py`). Read `options`, then a short group: `rejected`.
"""
