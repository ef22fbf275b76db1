"""zbus's client.

client    `ZbusClient`; tracked: the same over all brokers that trackers know
deliveries, queue_service   consuming from and answering on a queue
line      a kept connection
"""
