"""zbus 5: HTTP-shaped messages over TCP; queues, publish/subscribe, RPC, trackers."""
