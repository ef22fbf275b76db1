"""Which tests are slow, and which are run again under other conditions. An entry is the beginning of test ids.

Slow: `make test-slow` runs them, `make test` the others, `.ci/run` and `make soak` both. Whatever takes more than some
ten seconds belongs there, if something quicker in `make test` would notice the same fault in everyday work.

Verbs: each verb and each rule of every wire. `make test-delayed` runs them again behind a door whose outcomes come
later, and `make soak` the whole suites of wires and web.
"""

from __future__ import annotations

SLOW = (
    # Processes killed at random moments, damaged files of every kind, disks that fill up.
    "tests/recovery/test_bit_flip",
    "tests/recovery/test_danube_kill.py",
    "tests/recovery/test_danube_faults.py",
    "tests/recovery/test_doors_kill.py",
    "tests/recovery/test_file_kinds.py",
    "tests/recovery/test_kill.py",
    "tests/recovery/test_lost_segments.py",
    "tests/recovery/test_process_faults.py",
    "tests/recovery/test_seneca_kill.py",
    "tests/recovery/test_zbus_kill.py",
    "tests/server/test_lifeline.py",
    # The model of a queue looks at the same over a link, in everyday work.
    "tests/link/test_contract.py::test_a_subscription_does_over_the_link_what_the_model_says",
    # A thousand histories, and every planted bug in a process of its own.
    "tests/sim/test_histories.py::test_a_thousand_histories_are_clean",
    "tests/sim/test_planted.py::test_a_planted_bug_is_found",
    "tests/end_to_end/test_zbus_queues.py::test_a_queue_is_there_after_a_kill",
    "tests/end_to_end/test_zbus_queues.py::test_a_temporary_queue_is_not_kept_over_a_kill",
    "tests/end_to_end/test_zbus_queues.py::test_content_mode_and_token_survive",
    "tests/end_to_end/test_zbus_decisions.py::test_what_is_acknowledged_is_stored",
    "tests/end_to_end/test_danube_messages.py::test_a_stop_and_a_start_are_invisible",
    "tests/end_to_end/test_subscription_policies.py::test_policies_and_their_removal_outlast_a_restart",
    "tests/one_bus/test_danube_joins.py::test_a_replay_holds_over_a_restart_and_a_queue_can_be_replayed_too",
    "tests/one_bus/test_danube_joins.py::test_what_was_not_acknowledged_comes_again_after_the_plug_was_pulled",
    "tests/end_to_end/test_archive.py",
    "tests/journal/archive/test_restore.py",
    "tests/journal/write/test_seal.py::test_sealing_killed_at_random_moments",
    "tests/recovery/test_folder_watch.py",
    "tests/cli/test_messages.py::test_sub_goes_on_after_a_restart_of_the_bus",
    # Several JVMs, one after another.
    "tests/cli/test_demo.py",
    # Every command as a process, on a terminal and in a pipe.
    "tests/cli/test_every_command.py::test_on_60_columns",
    "tests/cli/test_every_command.py::test_piped_to_head",
    "tests/cli/test_pipeline.py",
    "tests/cli/test_up.py::test_what_is_published_is_in_the_tables",
    "tests/end_to_end/test_zbus_java.py",
    "tests/pipeline/test_borders.py",
    "tests/pipeline/test_bus_facts.py",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_delta_jar.py",
    "tests/pipeline/test_forgetting.py",
    "tests/pipeline/test_keeping.py",
    "tests/pipeline/test_jobs.py",
    "tests/pipeline/imports/",
    "tests/pipeline/test_kill.py",
    "tests/pipeline/test_live.py",
    "tests/pipeline/test_migrating.py",
    "tests/pipeline/test_oracle.py",
    "tests/pipeline/test_refreshing.py",
    "tests/pipeline/test_registry.py",
    "tests/pipeline/test_sandbox.py::test_a_query",
    "tests/pipeline/test_sandbox.py::test_files",
    "tests/pipeline/test_sandbox.py::test_so_many",
    "tests/pipeline/test_source.py",
    "tests/pipeline/test_typed.py",
    "tests/pipeline/transforms/test_exchanges.py",
    "tests/pipeline/transforms/test_traces.py",
    "tests/test_spark.py::test_the_notebook",
    "tests/tools/",
    # Kafka.
    "tests/cluster/test_takeover.py",
    "tests/cluster/test_place.py::test_a_wrong_name_and_one_that_is_taken",
    "tests/cluster/test_place.py::test_more_replicas_than_brokers",
    "tests/cluster/test_place.py::test_partitions_that_differ_from_the_lanes",
    "tests/cluster/test_place.py::test_a_newer_release_made_it",
    "tests/cluster/test_place.py::test_settings_that_could_lose_data_are_told_and_refused",
    "tests/cluster/test_place.py::test_a_lane_of_kafka_is_one",
    "tests/mirror/test_incoming.py",
    "tests/mirror/test_outgoing.py",
    "tests/mirror/test_brokers.py::test_tls_and_a_password_are_passed_on",
    "tests/mirror/test_brokers.py::test_a_wrong_password",
    "tests/mirror/test_brokers.py::test_a_certificate_that_nobody_vouches_for",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/howto/cluster.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/howto/cookbook.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/howto/import-captures.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/howto/kafka.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/howto/read-the-journal.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/howto/run-the-pipeline.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/learn/from-kafka.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/learn/from-nats.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/learn/from-rabbitmq.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/learn/pipeline.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/learn/quickstart.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[docs/operate/recovery.md]",
    "tests/test_docs.py::test_the_blocks_of_a_page_do_what_it_says[README.md]",
    # An image built from packages, a Prometheus that scrapes.
    "tests/deploy/test_dashboards.py",
    "tests/deploy/test_image.py",
    # A browser, and the whole manual as a site.
    "tests/end_to_end/test_console.py",
    "tests/end_to_end/test_console_guests.py",
    "tests/end_to_end/test_console_operates.py",
    "tests/end_to_end/test_console_past.py",
    "tests/end_to_end/test_console_truth.py",
    "tests/test_site.py",
    # Conformance suites, oracles, clients of other projects and versions.
    "tests/end_to_end/test_console_api.py::test_the_document_holds_under_schemathesis",
    "tests/end_to_end/test_grpc_h2spec.py",
    "tests/end_to_end/test_grpc_grpcio.py",
    "tests/end_to_end/test_grpc_js.py",
    "tests/end_to_end/test_seneca_npm_old.py",
    "tests/end_to_end/test_registry_clients.py",
    "tests/end_to_end/test_telemetry.py",
    "tests/net/codec/test_http2_oracle.py",
    "tests/net/codec/test_grpc_damaged.py",
    "tests/client/test_programs.py",
    "tests/client/test_typing.py",
    # Scale: many messages, topics, connections; bounds of memory.
    "tests/contract/test_far_behind.py",
    "tests/contract/test_retention_of_a_journal.py",
    "tests/demo/test_story.py",
    "tests/end_to_end/test_catch_up.py",
    "tests/end_to_end/test_console_scale.py",
    "tests/end_to_end/test_danube_far_behind.py",
    "tests/end_to_end/test_fanout.py",
    "tests/end_to_end/test_http_streams.py::test_a_reader_that_takes_little_is_never_closed",
    "tests/end_to_end/test_new_topics.py",
    "tests/end_to_end/test_slow_subscriber.py",
    "tests/end_to_end/test_zbus_hostile.py::test_a_body_of_the_largest_size_is_carried",
    "tests/end_to_end/test_zbus_hostile.py::test_a_queue_that_nobody_reads_costs_no_memory",
    "tests/end_to_end/test_zbus_hostile.py::test_topics_that_a_subscriber_adds_for_ever",
    "tests/end_to_end/test_zbus_model.py",
    "tests/contract/test_queue_model.py::test_a_queue_in_memory",
    "tests/cli/test_track.py",
    "tests/end_to_end/test_seneca_npm.py::test_five_megabytes_pass_both_ways",
    "tests/end_to_end/test_unfinished_input.py::test_what_unfinished_messages_took_is_given_back",
    "tests/one_bus/test_all_wires_at_once.py",
    "tests/one_bus/test_chains.py::test_a_hundred_chains_at_once",
    "tests/journal/read/test_reader.py::test_another_process_follows",
    "tests/journal/read/test_sealed.py::test_a_reader_far_behind",
    "tests/journal/read/test_sealed.py::test_several_threads_read_more_segments_than_are_kept",
    "tests/journal/write/test_upkeep.py::test_closed_segments_are_sealed_one_after_the_other",
    "tests/journal/write/test_upkeep.py::test_readers_in_other_threads_miss_nothing",
    "tests/journal/write/test_upkeep.py::test_the_state_is_whole_when_control_rows_are_in_sealed_segments",
)

VERBS = (
    "tests/one_bus/",
    "tests/wires/danube/listen/",
    "tests/wires/mb/listen/",
    "tests/wires/seneca/dial/",
    "tests/wires/seneca/listen/",
    "tests/wires/zbus/dial/",
    "tests/wires/zbus/listen/",
    "tests/web/",
    "tests/end_to_end/test_danube_admin.py",
    "tests/end_to_end/test_danube_consumers.py",
    "tests/end_to_end/test_danube_messages.py",
    "tests/end_to_end/test_danube_registry.py",
    "tests/end_to_end/test_mb_publish.py",
    "tests/end_to_end/test_mb_requests.py",
    "tests/end_to_end/test_mb_system.py",
    "tests/end_to_end/test_seneca_decisions.py",
    "tests/end_to_end/test_seneca_flows.py",
    "tests/end_to_end/test_zbus_admin.py",
    "tests/end_to_end/test_zbus_decisions.py",
    "tests/end_to_end/test_zbus_queues.py",
    "tests/end_to_end/test_zbus_rpc.py",
    "tests/end_to_end/test_zbus_rules.py",
)


def is_slow(test_id: str) -> bool:
    """Whether a test, by its id relative to the project, is one of the slow ones."""
    return test_id.startswith(SLOW)


def is_verb(test_id: str) -> bool:
    """Whether a test covers a verb or a rule of a wire."""
    return test_id.startswith(VERBS)
