"""The whole bus in simulation: one process, one thread, its own time, one seed. See `docs/operate/simulation.md`."""
