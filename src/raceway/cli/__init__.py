"""The command line: one file per group of commands. Heavy imports are inside the commands, so that `--help` is fast.

app          all commands, and how an error ends one
options      options that commands share, as records: where the bus is, the token, how to print
output, tables, words     tables, JSON, notes, progress, exit statuses; layout; meanings of words in help
bus, saved_buses          finding a bus, and calling its console port; the file of contexts
clients, talk, moments    the choice of a wire and the use of its client; times and places in topics
publishing, messages      `pub`; `sub`, `request` and `topics`
serve, demo, doctor, configuration, certificates   running a bus, and checking whether one can run
contexts, topics, subscriptions, lag, peers, schemas, rejected, trace   a running bus, over the console port
journal, archive, cluster, mirror                  files of a journal; its archive; on and to Apache Kafka
pipeline, pipeline_import, pipeline_options        the tables
load, bench, completion                            load on one's own bus; benchmarks; the shell

Wires have commands of their own (`wires/*/commands.py`). Read `options`, then a short group: `rejected`.
"""
