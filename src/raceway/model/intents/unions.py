"""The types of what the broker's entry point takes and returns."""

from __future__ import annotations

from typing import Any

from raceway.model.intents.batches import (
    Acknowledge,
    AskAll,
    Asked,
    Park,
    Publish,
    Request,
    Respond,
    Return,
    Send,
    Sent,
    Taken,
)
from raceway.model.intents.kinds import Done, IntentFor
from raceway.model.intents.queues import Enqueue, EnqueueRequests

BatchIntent = Publish | Request | AskAll | Respond | Send | Acknowledge | Return | Park | Enqueue | EnqueueRequests
BatchOutcome = Taken | Asked | Sent | Done
Intent = BatchIntent | IntentFor[Any]
