"""The bus: tables in memory, rows in the journal, one door for every wire. Sockets and protocols are unknown here.

Read in this order:
  door, view/    what wires and web may ask, and what they may look at
  broker         performs what is asked, and joins the parts below
  bus, steps     what all parts share: settings, clock, journal, topics, peers; intents that take a while
  topics, topic_records, topic_admin, routing   which topics there are, and who gets what
  publishing, producers, dedup, runs  a batch of messages from a peer to the journal and to its subscribers
  delivery/      peers that receive copies live, catching up from the journal, gaps
  subscriptions/ durable and live subscriptions with consumers
  queues/        queues and publish/subscribe queues
  requests/      requests, their responders and answers
  registry/      schemas: subjects, versions, contracts of topics
  undelivered/   dead letters, undeliverable messages, and sending them again
  security/      principals, roles, tokens
  reading        stored messages for readers
  metrics, logs, tracing, rates       counters, log records for peers, trace ids, rate limits
"""
