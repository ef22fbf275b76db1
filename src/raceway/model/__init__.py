"""The shared vocabulary: rows, batches, intents, names. Frozen, no I/O, no clock.

Read in this order:
  envelope   rows of the journal, many as columns (`Batch`) or one as a record
  intents/   what may be asked of the bus, and the outcomes
  topics     names, patterns over them, and matching
  lanes      which lane of a bus a topic is in
  subscriptions, schemas, security   records of what clients and operators create
  traces, trace_context, failure     trees of messages; W3C Trace Context; failures in answers
  progress, sql                      what the pipeline's processes tell the console port
  clusters                           nodes, lanes and brokers of a cluster
  document, wires                    Seneca's documents by member; what stored rows keep of their wire
  buckets, hashing, text, addresses  token buckets, hashes, checks of text, addresses
"""
