"""The bus: tables in memory, rows in the journal, one door for every wire. Sockets and protocols are unknown here.

Read in this order:
  door, view/    what wires and web may ask, and what they may look at
  broker         performs what is asked, and joins the parts below
  bus, steps     what all parts share: settings, clock, journal, topics, peers; intents that take a while
  topics, topic_records, topic_admin, routing   which topics there are, and who gets what
  publishing, mixed, producers, dedup, runs     a batch of messages from a peer to the journal and to its subscribers
  peers, delivery/   peers; copies that they receive live, catching up from the journal, gaps
  subscriptions/   durable and live subscriptions with consumers
  queues/        queues and publish/subscribe queues
  requests/      requests, their responders and answers; services: those that the bus calls
  registry/      schemas: subjects, versions, contracts of topics
  undelivered/   dead letters, undeliverable messages, and sending them again
  security/      principals, roles, tokens
  reading, readers, places   stored messages; who is told of new ones; positions in a topic
  changes, metrics, logs, tracing, rates       who changed what, counters, log records, trace ids, rate limits
  remembered     a table of the newest entries: ids of messages, requests that were answered
"""
