"""Settings: the only reader of configuration files and of the bus's environment variables.

One frozen record per section (`sections`), read once at start (`reading`); everything else takes its section as an
argument. Sections of wires are in the wires' packages, and passed to `load`. `hosts` has the names of this machine.
"""

from __future__ import annotations

from raceway.config import sections
from raceway.config.hosts import is_loopback, names_us, plain_host
from raceway.config.reading import Sections, Settings, effective, load
from raceway.config.sections import *  # noqa: F403 - their names are exported below

__all__ = ["Sections", "Settings", "effective", "is_loopback", "load", "names_us", "plain_host"]
__all__ += sections.__all__
