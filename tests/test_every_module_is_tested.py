"""Every module of the package has a test module in the same place, or a line here that says which tests cover it.

Modules without functions (records, names, constants) have nothing to test. Paths are relative to `tests` and, without
their ending, to `src/raceway`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import raceway

SOURCE = Path(raceway.__file__).parent
TESTS = Path(__file__).parent

# Tests, and the modules that they cover beside their own.
ELSEWHERE = {
    # Parts of a whole that is tested through its front.
    "broker/delivery/test_catch_up.py": "broker/delivery/live_peer",
    "broker/view/test_queues.py": "broker/queues/listing",
    "broker/queues/test_table.py": "broker/delivery/gaps",
    "broker/queues/test_calls.py": "broker/queues/access broker/queues/consumer model/intents/queues",
    "broker/registry/test_registry.py": "broker/registry/contracts broker/registry/references broker/registry/versions",
    "broker/requests/test_exchanges.py": "broker/requests/refusals",
    "broker/security/test_security.py": "broker/view/permissions model/security",
    "broker/subscriptions/test_table.py": "broker/subscriptions/settings model/intents/subscriptions",
    "cluster/test_place.py": "cluster/status journal/kafka/client kafka/replicas",
    "cluster/test_takeover.py": "cluster/ownership server/clustered server/events",
    "config/test_reading.py": "config/sections wires/danube/settings wires/mb/settings",
    "contract/test_journal.py": "journal/contract journal/log journal/read/reading",
    "journal/archive/test_copying.py": "journal/archive/lease journal/archive/ledger",
    "journal/archive/test_reader.py": "journal/archive/files journal/archive/segment",
    "journal/kafka/test_journal.py": "journal/kafka/lane journal/kafka/opening "
    "journal/kafka/segments journal/kafka/writer",
    "journal/test_local.py": "journal/write/threaded",
    "link/test_edge.py": "link/guarding",
    "link/test_lane.py": "link/peers",
    "mirror/test_brokers.py": "kafka/brokers",
    "mirror/test_outgoing.py": "mirror/positions",
    "net/client/test_schemas.py": "net/client/console",
    "net/test_connection.py": "net/runtime",
    "net/test_sockets.py": "net/certificates",
    "pipeline/test_jobs.py": "pipeline/taking",
    "pipeline/test_progress.py": "model/progress",
    "pipeline/test_lake.py": "pipeline/written",
    "pipeline/test_folders.py": "pipeline/opening",
    "pipeline/test_refreshing.py": "pipeline/tables pipeline/transforms/counting pipeline/transforms/rejected",
    "pipeline/imports/test_importing.py": "cli/pipeline_import pipeline/imports/chains pipeline/imports/pieces",
    "schema/test_avro.py": "schema/avro_datum schema/avro_json schema/avro_nodes schema/avro_reader",
    "schema/test_definition.py": "schema/reading",
    "schema/test_json_schema.py": "schema/json_cost schema/json_text",
    "schema/test_protobuf.py": "schema/proto_text schema/protobuf_compatibility",
    "schema/test_values.py": "schema/avro_datum",
    "server/test_lanes.py": "link/door server/lane",
    "server/test_process.py": "server/bus server/quiet server/running",
    "server/test_supervising.py": "server/tethered",
    "telemetry/test_exporter.py": "server/exporting",
    "web/test_app.py": "web/peer",
    "web/test_live.py": "broker/view/peers",
    "web/test_metrics.py": "broker/view/health",
    "web/test_subscriptions.py": "broker/view/subscriptions",
    "web/test_topics.py": "broker/view/topics",
    "wires/mb/listen/test_session.py": "wires/mb/listen/peer wires/mb/listen/tcp",
    # Figures of all tables together, on the same rows.
    "pipeline/test_figures.py": "pipeline/transforms/service_graph pipeline/transforms/topic_stats",
    # Commands, with a bus.
    "cli/test_danube_messages.py": "wires/danube/commands",
    "cli/test_messages.py": "cli/talk wires/mb/commands",
    "cli/test_rejected.py": "web/rejected",
    "cli/test_pipeline.py": "cli/pipeline_options",
    "cli/test_up.py": "server/beside",
    "cli/test_demo.py": "demo/report demo/stored demo/summary server/child_bus",
    "demo/test_story.py": "demo/danube demo/mb demo/mishaps demo/seneca demo/zbus",
    # Clients, with a bus.
    "client/test_typing.py": "net/client/client",
    "net/client/test_calls.py": "wires/mb/client/calls",
    "net/client/test_link.py": "wires/mb/client/link",
    "net/client/test_messages.py": "wires/mb/client/messages",
    "wires/danube/client/test_client.py": "wires/danube/client/consumer",
    "wires/seneca/client/test_client.py": (
        "wires/seneca/client/actions wires/seneca/client/attach wires/seneca/client/flow "
        "wires/seneca/client/host wires/seneca/client/http_door wires/seneca/client/returns wires/seneca/client/ways"
    ),
    "wires/zbus/client/test_client.py": (
        "wires/zbus/client/deliveries wires/zbus/client/line wires/zbus/client/queue_service"
    ),
    # Captures, compared with what the codecs say of the same bytes.
    "pipeline/test_import_danube.py": "wires/danube/capture/reader wires/captures/batches wires/captures/capture",
    "pipeline/test_import_mb.py": (
        "wires/mb/capture/reader wires/mb/capture/rules wires/captures/columns wires/captures/lines "
        "wires/captures/slices wires/captures/verdicts"
    ),
    "pipeline/test_import_seneca.py": "wires/seneca/capture/reader wires/captures/parsed",
    "pipeline/test_import_zbus.py": "wires/zbus/capture/columns wires/zbus/capture/heads wires/zbus/capture/reader",
    # What is easier to say of bytes, on a socket or of a whole document.
    "wires/seneca/codec/test_contradictions.py": "wires/seneca/codec/call wires/seneca/codec/meta wires/seneca/ids",
    "wires/seneca/dial/test_services.py": "broker/services wires/seneca/dial/service",
    "wires/seneca/listen/test_http.py": (
        "wires/seneca/listen/calls wires/seneca/listen/server wires/seneca/listen/session"
    ),
    "end_to_end/test_danube_admin.py": (
        "broker/view/administration wires/danube/listen/admin wires/danube/codec/policies"
    ),
    "end_to_end/test_danube_messages.py": (
        "wires/danube/listen/calls wires/danube/listen/clients wires/danube/listen/messages "
        "wires/danube/listen/server wires/danube/listen/session"
    ),
    "end_to_end/test_danube_registry.py": "broker/view/schemas wires/danube/listen/registry",
    "end_to_end/test_danube_security.py": "wires/danube/listen/security",
    "end_to_end/test_zbus_admin.py": "wires/zbus/listen/admin wires/zbus/listen/page wires/zbus/listen/peer",
    "end_to_end/test_zbus_queues.py": "wires/zbus/listen/server wires/zbus/listen/session",
    "end_to_end/test_mb_server.py": "wires/mb/listen/server",
    "one_bus/test_fifth_wire.py": "wires/server",
    "end_to_end/test_http_door.py": "web/connection web/publishing",
    "end_to_end/test_console_api.py": "web/answers web/health",
    "end_to_end/test_schema_registry.py": "web/registry web/registry_form",
    "end_to_end/test_schemas.py": "web/schemas",
}
COVERED = {module: tests for tests, modules in ELSEWHERE.items() for module in modules.split()}


def has_functions(file: Path) -> bool:
    return any(
        isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(ast.parse(file.read_text()))
    )


def modules() -> list[str]:
    """Modules with something to test; `__init__` is the map of its package, `_pb2` is generated."""
    files = [path for path in SOURCE.rglob("*.py") if not path.stem.startswith("__") and not path.stem.endswith("_pb2")]
    return sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in files if has_functions(path))


@pytest.mark.parametrize("module", modules())
def test_a_module_has_its_test_module_or_a_line_that_names_one(module: str) -> None:
    place = Path(module)
    own = TESTS / place.parent / f"test_{place.name}.py"
    assert own.exists() != (module in COVERED), f"write {own}, or name the tests that cover it in ELSEWHERE (not both)"


def test_every_line_names_tests_and_modules_that_exist() -> None:
    assert [tests for tests in ELSEWHERE if not (TESTS / tests).exists()] == []
    assert sorted(set(COVERED) - set(modules())) == []
