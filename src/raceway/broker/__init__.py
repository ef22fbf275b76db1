"""The bus: tables in memory, rows in the journal, one door for every wire. Sockets and protocols are unknown here.

Read in this order:
  door           what wires and web may ask (`broker.py`: the door, and how the parts below are joined)
  view/          what wires may look at, by subject
  bus            what all parts share: settings, clock, journal, topics, peers
  topics, topic_records, routing      which topics there are, and who gets what
  publishing, producers, dedup, runs  a batch of messages from a peer to the journal and to its subscribers
  delivery/      peers that receive copies live, catching up from the journal, gaps
  subscriptions/ durable and live subscriptions with consumers
  queues/        queues and publish/subscribe queues
  requests/      requests, their responders and answers
  registry/      schemas: subjects, versions, contracts of topics
  undelivered/   dead letters, undeliverable messages, and sending them again
  security/      principals, roles, tokens
  metrics, logs, tracing, rates       counters, log records for peers, trace ids, rate limits
"""
