"""Settings: the only reader of configuration files and environment.

One frozen record per section (`sections`), read once at start (`reading`); everything else takes its section as an
argument.
"""

from __future__ import annotations

from raceway.config.hosts import is_loopback, names_us, plain_host
from raceway.config.reading import FILE_VARIABLE, HIDDEN, NOT_SETTINGS, RENAMED, Settings, describe, effective, load
from raceway.config.sections import (
    KIB,
    MIB,
    AttachedServiceSettings,
    BrokerSettings,
    Config,
    DanubeWire,
    Dial,
    FailureDefaults,
    GrpcWire,
    HttpDoorSettings,
    JournalSettings,
    Listen,
    Log,
    MbWire,
    PipelineSettings,
    Retention,
    SchemaSettings,
    Section,
    SecuritySettings,
    Seneca,
    SenecaWire,
    Subscriptions,
    Telemetry,
    TopicLimits,
    ZbusWire,
)

__all__ = [
    "FILE_VARIABLE", "HIDDEN", "KIB", "MIB", "NOT_SETTINGS", "RENAMED", "AttachedServiceSettings", "BrokerSettings",
    "Config", "DanubeWire", "Dial", "FailureDefaults", "GrpcWire", "HttpDoorSettings", "JournalSettings", "Listen",
    "Log", "MbWire", "PipelineSettings", "Retention", "SchemaSettings", "Section", "SecuritySettings", "Seneca",
    "SenecaWire", "Settings", "Subscriptions", "Telemetry", "TopicLimits", "ZbusWire", "describe", "effective",
    "is_loopback", "load", "names_us", "plain_host",
]  # fmt: skip
