from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.generate.settings import descriptions
from raceway import config, wires
from raceway.config import reading
from raceway.errors import ConfigError
from raceway.wires.mb.settings import MbWire


def load(
    environment: dict[str, str] | None = None, flags: dict[str, object] | None = None, file: Path | None = None
) -> config.Settings:
    """What the program would load, without this machine's environment."""
    return config.load(file, environment or {}, flags, sections=wires.sections())


def written(folder: Path, text: str) -> Path:
    file = folder / "raceway.toml"
    file.write_text(text)
    return file


def test_without_any_source_every_value_is_its_default() -> None:
    settings = load()
    assert settings.config == config.Config()
    assert set(settings.origins.values()) == {"default"}


def test_a_later_source_wins_and_the_origin_is_remembered(tmp_path: Path) -> None:
    text = "[listen]\nport_base = 1000\nbacklog = 5\n[listen.mb]\nsweep_ms = 7\n"
    settings = load(
        file=written(tmp_path, text),
        environment={"RACEWAY_LISTEN__PORT_BASE": "2000", "RACEWAY_LISTEN__MB__HEARTBEAT_MS": "200"},
        flags={"listen.port_base": 3000, "listen.host": None},
    )
    listen = settings.config.listen
    mb = listen.of(MbWire)
    assert (listen.port_base, listen.backlog, mb.sweep_ms, mb.heartbeat_ms) == (3000, 5, 7, 200)
    assert settings.origins["listen.port_base"] == "flag"
    assert settings.origins["listen.backlog"] == str(tmp_path / "raceway.toml")
    assert settings.origins["listen.mb.heartbeat_ms"] == "environment RACEWAY_LISTEN__MB__HEARTBEAT_MS"
    assert settings.origins["listen.host"] == "default"


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[journal]\ndurability = "os"\n')
    assert config.load(None, {"RACEWAY_CONFIG": str(file)}, sections={}).config.journal.durability == "os"


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("RACEWAY_LISTEN__INSECURE", "true", "listen.insecure", True),
        ("RACEWAY_JOURNAL__SEGMENT_AGE_S", "1.5", "journal.segment_age_s", 1.5),
        ("RACEWAY_LISTEN__HOSTS", "a.example, b.example", "listen.hosts", ("a.example", "b.example")),
        ("RACEWAY_LISTEN__HOSTS", '["a"]', "listen.hosts", ("a",)),
        ("RACEWAY_LISTEN__MB__TOPIC_RATE_PER_SERVICE", '{"a.b" = 5}', "listen.mb.topic_rate_per_service", {"a.b": 5}),
    ],
)
def test_text_of_the_environment_becomes_what_the_key_wants(name: str, text: str, key: str, value: object) -> None:
    settings = load(environment={name: text})
    assert config.effective(settings.config, wires.sections())[key] == value


def test_other_variables_with_our_prefix_are_left_alone() -> None:
    settings = load(environment={"RACEWAY_ROUNDS": "5", "RACEWAY_URL": "mb://x"})
    assert (settings.config, settings.warnings) == (config.Config(), ())


def test_a_variable_that_looks_like_a_setting_is_named() -> None:
    """Other programs' variables are not ours, nor those that Kubernetes makes for a Service."""
    of_kubernetes = {
        "RACEWAY_SERVICE_HOST": "10.0.0.1", "RACEWAY_SERVICE_PORT_MB": "3001", "RACEWAY_PORT": "tcp://10.0.0.1:8600",
        "RACEWAY_PORT_8600_TCP_ADDR": "10.0.0.1",
    }  # fmt: skip
    assert load(environment={"PORT": "1", "RACER_PORT": "2"} | of_kubernetes).warnings == ()
    assert load(environment={"RACEWAY_PORT": "3001", "RACEWAY_PORT_BASE": "28000"}).warnings == (
        "RACEWAY_PORT is not a setting and is ignored; use RACEWAY_SECTION__KEY",
        "RACEWAY_PORT_BASE is not a setting and is ignored; did you mean RACEWAY_LISTEN__PORT_BASE?",
    )


BOTH_OR_NEITHER = "set both listen.tls_certificate and listen.tls_key, or neither"


@pytest.mark.parametrize(
    ("sources", "key", "part"),
    [
        ({"environment": {"RACEWAY_LISTEN__PORT": "1"}}, "listen.port", "unknown setting"),
        ({"flags": {"journal.sweep_ms": 1}}, "journal.sweep_ms", "did you mean listen.grpc.sweep_ms?"),
        ({"environment": {"RACEWAY_LISTEN__PORT_BASE": "70000"}}, "listen.port_base", "<= 65535"),
        ({"environment": {"RACEWAY_JOURNAL__DURABILITY": "maybe"}}, "journal.durability", "'maybe'"),
        ({"environment": {"RACEWAY_JOURNAL__BLOCK_ROWS": "0"}}, "journal.block_rows", ">= 1"),
        ({"environment": {"RACEWAY_JOURNAL__RETENTION__HOLD_S": "{"}}, "journal.retention.hold_s", "TOML value"),
        ({"flags": {"listen.host": "0.0.0.0"}}, "listen.host", "--insecure"),
        ({"flags": {"listen.tls_key": "key.pem"}}, "listen.tls_certificate", BOTH_OR_NEITHER),
        ({"flags": {"listen.tls_certificate": "cert.pem"}}, "listen.tls_key", BOTH_OR_NEITHER),
        ({"flags": {"listen.port_base": 65530}}, "listen.port_base", "at most 65526: 10 ports"),
        ({"flags": {"listen.mb.deregister_ms": 30000}}, "listen.mb.deregister_ms", "longer"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_the_name_of_its_key(sources: dict[str, Any], key: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**sources)
    assert caught.value.key == key
    assert part in str(caught.value)


def test_the_error_names_where_the_value_came_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"raceway\.toml"):
        load(file=written(tmp_path, "[listen]\nport_base = -1\n"))
    with pytest.raises(ConfigError, match="environment RACEWAY_LISTEN__PORT_BASE"):
        load(environment={"RACEWAY_LISTEN__PORT_BASE": "-1"})


@pytest.mark.parametrize(("text", "part"), [("[listen", "is not TOML"), ("\x00", "is not TOML")])
def test_a_file_that_is_no_toml_is_refused_by_its_name(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part) as caught:
        load(file=written(tmp_path, text))
    assert caught.value.key == str(tmp_path / "raceway.toml")


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(tmp_path / "none.toml", {}, sections={})


@pytest.mark.parametrize(
    "flags",
    [
        {"listen.host": "0.0.0.0", "listen.insecure": True},
        {"listen.host": "0.0.0.0", "listen.tls_certificate": "c", "listen.tls_key": "k"},
        {"listen.host": "::1"},
        {"listen.host": "127.0.0.2"},
    ],
)
def test_other_addresses_need_tls_or_leave(flags: dict[str, object]) -> None:
    assert load(flags=flags).config.listen.host == flags["listen.host"]


def test_every_key_is_described_and_shown() -> None:
    described = reading.describe(wires.sections())
    assert all(descriptions(setting.section).get(setting.name) for setting in described.values())
    assert set(config.effective(config.Config(), wires.sections())) == set(described) == set(load().origins)


def test_defaults_pass_their_own_checks() -> None:
    for key, setting in reading.describe(wires.sections()).items():
        value = setting.default() if callable(setting.default) else setting.default
        if setting.default is msgspec.NODEFAULT or value is msgspec.NODEFAULT:
            value = config.effective(config.Config(), wires.sections())[key]
        msgspec.convert(value, setting.kind)


def test_secrets_are_known() -> None:
    assert {key for key, setting in reading.describe(wires.sections()).items() if setting.is_secret} == {
        "security.admin_token", "security.token_secret", "listen.zbus.tracker_token", "telemetry.headers",
        "storage.access_key", "storage.secret_key", "storage.session_token",
    }  # fmt: skip


def test_sections_are_frozen() -> None:
    with pytest.raises(AttributeError):
        config.Config().listen.port_base = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("host", "insecure", "expected"),
    [("127.0.0.1", False, "127.0.0.1"), ("0.0.0.0", False, "127.0.0.1"), ("0.0.0.0", True, "0.0.0.0")],
)
def test_plain_doors_stay_on_loopback_unless_told_otherwise(host: str, insecure: bool, expected: str) -> None:
    assert config.plain_host(config.Listen(host=host, insecure=insecure)) == expected


def test_secrets_are_not_shown() -> None:
    variables = {"RACEWAY_SECURITY__ADMIN_TOKEN": "s3cret", "RACEWAY_LISTEN__ZBUS__TRACKER_TOKEN": "s3cret"}
    settings = load(environment=variables)
    assert settings.config.security.admin_token == "s3cret"
    shown = config.effective(settings.config, wires.sections())
    assert "s3cret" not in str(shown)
    assert shown["security.admin_token"], "that there is one is shown"
    assert config.effective(load().config, wires.sections())["security.admin_token"] == ""


def test_the_old_name_of_a_setting_is_read_with_a_warning_that_does_not_show_its_value(tmp_path: Path) -> None:
    file = written(tmp_path, '[listen.zbus]\nadmin_token = "s3cret"\n')
    settings = load(file=file)
    assert settings.config.security.admin_token == "s3cret"
    assert settings.origins["security.admin_token"] == str(file)
    assert settings.warnings == (f"listen.zbus.admin_token is now called security.admin_token ({file})",)
    assert load(environment={"RACEWAY_LISTEN__ZBUS__ADMIN_TOKEN": "0"}).config.security.admin_token == "0"
    assert load().warnings == ()


def test_the_present_name_of_a_setting_wins_over_the_old_one(tmp_path: Path) -> None:
    both = "[listen.zbus]\nadmin_token = 'old'\n[security]\nadmin_token = 'new'\n"
    assert load(file=written(tmp_path, both)).config.security.admin_token == "new"
    variables = {"RACEWAY_LISTEN__ZBUS__ADMIN_TOKEN": "later"}
    assert load(variables, file=written(tmp_path, both)).config.security.admin_token == "later", "sources first"


def test_every_renamed_setting_leads_to_one_that_exists() -> None:
    assert set(reading.RENAMED.values()) <= set(reading.describe(wires.sections()))
    assert not set(reading.RENAMED) & set(reading.describe(wires.sections()))


def test_security_needs_a_secret_that_cannot_be_guessed() -> None:
    with pytest.raises(ConfigError, match=r"security\.token_secret: must have 32 bytes or more"):
        load(flags={"security.enabled": True, "security.token_secret": "x" * 31})
    assert load(flags={"security.enabled": True, "security.token_secret": "x" * 32}).config.security.enabled
    shown = config.effective(load(flags={"security.token_secret": "x" * 32}).config, wires.sections())
    assert shown["security.token_secret"] == reading.HIDDEN


def test_the_keys_of_an_object_store_are_secrets_and_come_together() -> None:
    keys: dict[str, object] = {"storage.access_key": "who", "storage.secret_key": "s3cret"}
    shown = config.effective(load(flags=keys).config, wires.sections())
    assert shown["storage.access_key"] == shown["storage.secret_key"] == reading.HIDDEN
    with pytest.raises(ConfigError, match=r"storage\.secret_key: set both"):
        load(flags={"storage.access_key": "who"})
    with pytest.raises(ConfigError, match=r"storage\.access_key: set both"):
        load(flags={"storage.secret_key": "s3cret"})
    with pytest.raises(ConfigError, match=r"storage\.endpoint: must begin with http"):
        load(flags={"storage.endpoint": "10.0.0.9:9000"})


def test_the_address_told_to_danube_clients_has_no_scheme() -> None:
    with pytest.raises(ConfigError, match=r"listen\.danube\.advertised: must be host:port"):
        load(flags={"listen.danube.advertised": "http://bus.example:6650"})


def test_headers_for_a_collector_are_secrets_too() -> None:
    settings = load(environment={"RACEWAY_TELEMETRY__HEADERS": '{"x-api-key" = "s3cret"}'})
    assert settings.config.telemetry.headers == {"x-api-key": "s3cret"}
    assert config.effective(settings.config, wires.sections())["telemetry.headers"] == reading.HIDDEN


def test_a_secret_that_cannot_be_used_is_not_shown_either() -> None:
    with pytest.raises(ConfigError) as refused:
        load(flags={"security.token_secret": ["s3cret"]})
    assert "s3cret" not in str(refused.value)


def test_an_archive_needs_sealed_segments_on_disk_and_no_keys_in_its_url() -> None:
    assert load(flags={"journal.archive": "s3a://bucket/path"}).config.journal.archive == "s3a://bucket/path"
    with pytest.raises(ConfigError, match=r"journal\.archive: needs a journal on disk"):
        load(flags={"journal.archive": "/there", "journal.durability": "memory"})
    with pytest.raises(ConfigError, match=r"journal\.archive: archives sealed segments"):
        load(flags={"journal.archive": "/there", "journal.seal": False})
    with pytest.raises(ConfigError, match=r"journal\.archive: must not contain keys") as caught:
        load(flags={"journal.archive": "s3://key:s3cret@bucket"})
    assert "s3cret" not in str(caught.value)
