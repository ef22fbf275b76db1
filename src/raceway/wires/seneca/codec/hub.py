"""The Seneca codec, as listeners, callers and clients import it.

seneca_document   JSON objects whose members stay encoded         seneca_custom    custom data as attributes
seneca_trk        the hop list of a message flow                  seneca_failure   errors
seneca_call       one request, and its row                        seneca_request   requests over HTTP
seneca_line       newline-delimited JSON over TCP                 seneca_answer    responses in each dialect
seneca_outgoing   requests to listeners, and their responses      seneca_rows      rows of any wire as documents
seneca_pattern    the text of patterns
"""

from raceway.model.document import Members, raw_members, raw_of, read_members
from raceway.wires.seneca.codec.answer import (
    HttpAnswer,
    Outcome,
    Result,
    Stamp,
    accepted_http,
    answer_http,
    answer_line,
    http_bytes,
    refusal_http,
    response_document,
    several_http,
    several_line,
)
from raceway.wires.seneca.codec.call import UNKNOWN_SENDER, Call, Dialect, Fresh, Headers, batch_of, batch_of_all
from raceway.wires.seneca.codec.failure import CallFailure, failure_of, not_found
from raceway.wires.seneca.codec.line import LineReceiver, LineRefused, read_line, refusal_line
from raceway.wires.seneca.codec.outgoing import (
    HttpRequest,
    ListenerReply,
    Outgoing,
    call_http,
    call_line,
    filled_hops,
    http_request_bytes,
    read_answer_line,
    read_http_answer,
    read_returned,
)
from raceway.wires.seneca.codec.pattern_text import parse_pattern, parse_pins, pattern_of
from raceway.wires.seneca.codec.request import NotACall, read_http, too_large
from raceway.wires.seneca.codec.rows import (
    PayloadForm,
    ReplyRow,
    answer_batch,
    document_of,
    outcome_of,
    outgoing_of,
    payload_of,
    with_keys,
)
from raceway.wires.seneca.codec.trk import answered, closed, limited, received, started, with_children

# The only import path for code outside the codec: how the codec is split into modules may change.
__all__ = [
    "UNKNOWN_SENDER", "Call", "CallFailure", "Dialect", "Fresh", "Headers", "HttpAnswer", "HttpRequest", "LineReceiver",
    "LineRefused", "ListenerReply", "Members", "NotACall", "Outcome", "Outgoing", "PayloadForm", "ReplyRow", "Result",
    "Stamp", "accepted_http", "answer_batch", "answer_http", "answer_line", "answered", "batch_of", "batch_of_all",
    "call_http", "call_line", "closed", "document_of", "failure_of", "filled_hops", "http_bytes", "http_request_bytes",
    "limited", "not_found", "outcome_of", "outgoing_of", "parse_pattern", "parse_pins", "pattern_of", "payload_of",
    "raw_members", "raw_of", "read_answer_line", "read_http", "read_http_answer", "read_line", "read_members",
    "read_returned", "received", "refusal_http", "refusal_line", "response_document", "several_http", "several_line",
    "started", "too_large", "with_children", "with_keys",
]  # fmt: skip
