"""Apache Kafka: its brokers by URL and properties, and what goes wrong with them in one sentence.

brokers    the brokers that a URL names, their properties, and their errors in plain words
replicas   replicas of partitions, and settings of topics

Mirrors, clusters and `journal/kafka` share it.
"""
