"""The console port: the console, its API, messages over HTTP, and the schema registry.

Read in this order:
  routing        how a route is declared, once, on its handler; access, OpenAPI and the manual derive from it
  inputs, answers                query strings and bodies into records; errors into responses
  app            the application: all groups of routes, joined
  connection, unread             limits of a connection; answers that nobody reads
  guard, doorman                 cross-site requests; permissions
  peer           the peer of a request: how a handler asks the bus (`broker/door.py`)
  asking         queries that take a while, run outside the event loop
  administration what operators change: topics, subscriptions, queues, connections
  publishing     messages over HTTP: publish, request
  reading, event_streams         messages of a topic by offset, or live
  live, history, moments         figures of now, and of the last hours
  topics, messages, rejected, subscriptions, policies, queues, schemas, graph, pipeline, sql, health, session, cluster
                 the API of the console, of `raceway` commands and of scripts
  registry, registry_form        the schema registry in Confluent's form
  doors          addresses of all ports of the bus
  openapi, asyncapi, metrics     documents about the port and the topics; Prometheus
  packing        compressed answers
  audit          entries about changes
  console, static/               the console's files
"""
