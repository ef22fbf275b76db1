"""Seneca: JSON messages addressed by pattern, over HTTP and TCP, in the dialects of its clients.

codec/      documents to rows and back, patterns; no I/O
listen/     its server side, over HTTP and TCP
dial/       services that the bus calls, and answers to addresses that callers name
client/     `SenecaClient`; services of a program
capture/    captured traffic as rows
wire        its record: ports, client, capture reader, colours
settings    `[listen.seneca]` and `[seneca]`
commands    `raceway seneca`, and what is different when others use its client
ids         ids as npm Seneca makes them

Read `codec/call`, then `listen/session`.
"""
