"""Job files: a stream job said in TOML, checked before anything runs, and made of calls of `appulse.api`.

Nothing in a job file is ever evaluated; ``~`` at the beginning of a path is the one thing that is expanded.
"""

from appulse.jobs.job import Job, build, load, validate
from appulse.jobs.on_spark import run
from appulse.jobs.problems import Problem

__all__ = ["Job", "Problem", "build", "load", "run", "validate"]
