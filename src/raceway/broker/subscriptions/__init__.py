"""Subscriptions of a topic: named, with consumers, durable or live.

table         all subscriptions: create, find, restore, acknowledge
subscription  what durable and live ones share; the end of a topic that they follow
durable, keyed, live   the three kinds of delivery
consumers, keys        who is connected, and which consumer gets which key
pending       what slow consumers of a live key-shared subscription have still to get
windows       messages handed out and not yet acknowledged
progress      acknowledged ranges and failure counts, as kept in the journal's state
administration         what administrators list, remove and set
absences, settings     consumers that are away, what administrators set
"""
