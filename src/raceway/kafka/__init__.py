"""Apache Kafka: its brokers by URL and properties, and what goes wrong with them in one sentence."""
