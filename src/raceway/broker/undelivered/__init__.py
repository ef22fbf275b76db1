"""Messages that could not be delivered.

dead_letters   publish a message to its subscription's dead-letter topic
undeliverable  rows of `raceway.undeliverable`
redrive        send rejected and undelivered messages again
"""
