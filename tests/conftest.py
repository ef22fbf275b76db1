"""Settings for all tests: hypothesis without a deadline (shared machines), examples kept few unless asked for."""

from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")
