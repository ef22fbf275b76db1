"""The four wires. Each package is a room: everything about one protocol.

mb/  danube/  zbus/  seneca/   in each: codec/ (pure), listen/ (server side), client/, capture/ (raw files to rows)
captures/                      what the capture readers share
"""
