"""Messages for users of Apache Kafka, and from them: `raceway mirror`. Runs in a process of its own.

    records     rows of the journal as records, records as messages. No I/O
    positions   how far a mirror has come, kept in Kafka itself
    outgoing    follows the journal's files and writes records, exactly once for `read_committed` readers
    incoming    reads records and publishes them over the console port

The brokers are found by `raceway.kafka`. Nothing here is loaded by a bus.
"""
