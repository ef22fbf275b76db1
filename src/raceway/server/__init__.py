"""The process that runs a bus: what `raceway serve` and `raceway up` start, and what a program embeds.

process, running   build the parts, join them, run until told to stop; the file `raceway.json`
bus                the broker and its door, and their start, upkeep and stop
doors, quiet       open and close the ports of all wires; uvicorn in the loop of the bus
lanes, lane, lane_door   a bus of several lanes: the process that starts them; one of them; the door of its console
clustered, standby   a node of a cluster; its console port while it waits
exporting          traces to a collector
events      waiting for one of several
lifeline, logs     memory reserve; log records
embedded           a bus in a thread, for tests
beside, supervising, tethered, child_bus, ports   child processes
"""
