"""Names of OpenTelemetry's semantic conventions for messaging, as far as the bus uses them.

The conventions are still in development and names change between their releases: this is the only place that spells
them. Names of our own begin with `raceway.`.
"""

from __future__ import annotations

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
CONVERSATION_ID = "messaging.message.conversation_id"
CLIENT_ID = "messaging.client.id"
ERROR_TYPE = "error.type"
SERVICE_NAME, SERVICE_VERSION = "service.name", "service.version"

# Values.
RACEWAY = "raceway"
SEND, PROCESS = "send", "process"
PRODUCER, CONSUMER = "producer", "consumer"

# Facts of the bus for which the conventions have no name.
WIRE = "raceway.wire"
KIND = "raceway.kind"
OFFSET = "raceway.offset"
POSITION = "raceway.position"
# The trace id was derived from the correlation id: no message of the chain carried a `traceparent`.
DERIVED = "raceway.trace.derived"
