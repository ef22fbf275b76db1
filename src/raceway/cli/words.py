"""Words of Raceway's own: a help page ends with the meanings of those that are on it. The glossary has all."""

from __future__ import annotations

import re

MEANINGS = {
    "attribute": "name and text that a message carries beside its payload",
    "bronze": "tables of messages as they are; silver and gold have what is computed from them",
    "capture": "a file of recorded traffic of one wire",
    "console port": "the port of the web console, HTTP interface, health and metrics (8600)",
    "context": "a saved name for the URL and the token of a bus",
    "correlation id": "id of the first message of a chain, on all messages of it",
    "data folder": "where the journal, and the pipeline beside it, keep everything",
    "dead letter": (
        "a message that failed so often that its Danube subscription put it aside, into a topic of its own"
    ),
    "dialect": "one of the forms in which Seneca is spoken: L, W, S, T",
    "journal": "the one log of all messages, on disk",
    "lag": "publishes that a subscription has not acknowledged yet",
    "lane": "one ordered log of a bus that may have several; in a cluster a partition of Kafka",
    "offset": "number of a publish or request in its topic, from 0 without gaps",
    "peer": "whoever is connected to a port of the bus",
    "pin": "the pattern of the messages that belong to an attached Seneca service",
    "pipeline": "the process that computes tables from the journal, with Spark",
    "position": "number of a row in the whole journal",
    "rejected": "refused by a schema under enforce; kept in the topic raceway.rejected",
    "row": "one message in the journal, with all its columns",
    "segment": "one file of the journal",
    "subject": "a named schema with its versions",
    "tracker": "a program that tells zbus clients which brokers have a queue",
    "undeliverable": "what a receiver did not take, or its wire cannot carry; kept in the topic raceway.undeliverable",
    "wire": "one of the four protocols: MB, Danube, zbus, Seneca",
}
# Not as part of the name of a setting, such as `journal.folder`.
_FORMS = {word: re.compile(rf"\b{word}s?\b(?!\.\w)", re.IGNORECASE) for word in MEANINGS}


def explain(text: str) -> str:
    """Return a paragraph with the meaning of each word that occurs in a text; empty if none does."""
    found = [f"{word}, {MEANINGS[word]}" for word, form in _FORMS.items() if form.search(text)]
    return f"Words: {'; '.join(found)}." if found else ""
