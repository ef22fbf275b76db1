"""zbus's server side.

session     a connection: events to the broker, replies back
peer        the connection as the broker sees it: deliveries, which of them have left, and answers
admin, page, tracker   administration, the monitoring page, the tracker's table
"""
