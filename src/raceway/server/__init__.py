"""The process that runs a bus: what `raceway serve` and `raceway up` start, and what a program embeds.

process   build the parts, join them, run until told to stop
bus       the broker and its door, and their start, upkeep and stop
doors     open and close the ports of all wires
exporting             traces to a collector
lifeline, logs        memory reserve; log records
embedded  a bus in a thread, for tests
beside, supervising, tethered, child_bus, ports   child processes
"""
