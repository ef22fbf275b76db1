from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from raceway import config
from raceway.pipeline.storage import storage_of

SETTINGS = config.StorageSettings(endpoint="http://10.0.0.9:9000", access_key="key", secret_key="hush")


@pytest.fixture(autouse=True)
def _without_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT_URL", "REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)


@pytest.mark.parametrize("root", ["s3://lake/raceway", "s3a://lake/raceway"])
def test_either_spelling_is_one_place_for_every_library(root: str) -> None:
    storage = storage_of(root, SETTINGS)
    assert storage.url("gold.traces") == "s3://lake/raceway/gold/traces"
    assert storage.hadoop_url("gold.traces") == "s3a://lake/raceway/gold/traces"
    assert storage.path("gold.traces") == "lake/raceway/gold/traces"


def test_settings_said_once_have_the_names_of_each_library() -> None:
    storage = storage_of("s3://lake", SETTINGS)
    assert storage.delta_options() == {
        "AWS_ENDPOINT_URL": "http://10.0.0.9:9000",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_ALLOW_HTTP": "true",
    }
    assert storage.hadoop_options() == {
        "spark.hadoop.fs.s3a.endpoint": "http://10.0.0.9:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": "hush",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


def test_what_is_not_set_comes_from_spark_properties_then_from_the_variables_of_aws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://elsewhere")
    conf = {"spark.hadoop.fs.s3a.endpoint": "https://told-to-spark"}
    found = storage_of("s3://lake", config.StorageSettings(access_key="a", secret_key="b"), conf)
    assert found.settings == config.StorageSettings(
        endpoint="https://told-to-spark", region="eu-central-1", access_key="a", secret_key="b"
    )
    assert storage_of("s3://lake", SETTINGS, conf).settings.endpoint == "http://10.0.0.9:9000"


def test_a_folder_needs_nothing(tmp_path: Path) -> None:
    storage = storage_of(str(tmp_path), SETTINGS)
    assert storage.delta_options() == storage.hadoop_options() == {}
    assert storage.url("gold.traces") == storage.hadoop_url("gold.traces") == f"{tmp_path}/gold/traces"
    storage.filesystem().create_dir(storage.path("gold.traces"))
    assert (tmp_path / "gold" / "traces").is_dir()


def test_keys_are_not_shown_and_reach_the_workers() -> None:
    storage = storage_of("s3://lake", SETTINGS)
    assert "hush" not in repr(storage)
    assert pickle.loads(pickle.dumps(storage)).delta_options() == storage.delta_options()
