"""Jobs: functions as tasks. Enqueue now or later, run once, retry with backoff, read the result."""

from everpoll.jobs.job import Job
from everpoll.jobs.options import JobOptions
from everpoll.jobs.outcome import Retry
from everpoll.jobs.registry import Jobs
from everpoll.jobs.schedules import Schedule, ScheduleInfo, Schedules
from everpoll.jobs.task import Task

__all__ = ["Job", "JobOptions", "Jobs", "Retry", "Schedule", "ScheduleInfo", "Schedules", "Task"]
