"""Settings: the only reader of configuration files and environment.

One frozen record per section (`sections`), read once at start (`reading`); everything else takes its section as an
argument. Sections of wires are in the wires' packages, and passed to `load`.
"""

from __future__ import annotations

from raceway.config import sections
from raceway.config.hosts import is_loopback, names_us, plain_host
from raceway.config.reading import Sections, Settings, effective, load
from raceway.config.sections import *  # noqa: F403 - their names are exported below

__all__ = ["Sections", "Settings", "effective", "is_loopback", "load", "names_us", "plain_host"]
__all__ += sections.__all__
