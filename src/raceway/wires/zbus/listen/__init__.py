"""zbus's server side.

session     a connection: events to the broker, deliveries back
deliveries  heads of deliveries, and which have left
admin, page, tracker   administration, the monitoring page, the tracker's table
"""
