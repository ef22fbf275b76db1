"""zbus's server side.

server      the wire: queues, and a tracker if one is set
session     a connection: events to the broker, replies back
peer        the connection as the broker sees it: deliveries, which of them have left, and answers
admin, page            administration, the monitoring page
tracker, tracking      the tracker's table; trackers of this bus
"""
