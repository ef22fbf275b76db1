"""Intents, which peers ask of the bus, and outcomes, which the bus answers: the interface of codecs and broker.

Messages are columns: `Publish`, `Request` and `Respond` have a `Batch` of consecutive rows of one kind. Every other
intent is a small record that names the type of its outcome (`IntentFor`). A codec decodes bytes into intents and
encodes outcomes into bytes; the broker's one entry point takes an intent and returns an outcome. Errors are outcomes
too: a `RacewayError`.

  kinds        what intents and outcomes are made of
  batches      messages: publish, request, answer, acknowledge; the types of what the entry point takes and returns
  peers        the peer itself, its subscriptions, what it sees of others
  queues       messages of queues, consumers of queues, their creation
  services     services that the bus calls
  producers, subscriptions   registered producers; consumers of named subscriptions
  reading      stored messages: by position, as they are committed, those that were not delivered
  topics, administration, schemas, roles     administration; the schema registry
  security, credentials      who a caller is; who sends a message, where each message says so itself
"""
