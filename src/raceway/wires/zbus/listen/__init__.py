"""zbus's server side.

session     a connection: events to the broker, replies back
peer        the connection as the broker sees it: deliveries and answers
deliveries  heads of deliveries, and which have left
admin, page, tracker   administration, the monitoring page, the tracker's table
"""
