"""Jobs: functions as tasks. Enqueue now or later, run once, retry with backoff, read the result."""

from everpoll.jobs.flows import Chain, JobCall
from everpoll.jobs.groups import Group, GroupInfo, NewGroup
from everpoll.jobs.job import Job
from everpoll.jobs.options import JobOptions
from everpoll.jobs.outcome import Retry
from everpoll.jobs.registry import Jobs
from everpoll.jobs.schedule_listing import ScheduleInfo
from everpoll.jobs.schedules import Schedule, Schedules
from everpoll.jobs.task import Task

__all__ = [
    "Chain",
    "Group",
    "GroupInfo",
    "Job",
    "JobCall",
    "JobOptions",
    "Jobs",
    "NewGroup",
    "Retry",
    "Schedule",
    "ScheduleInfo",
    "Schedules",
    "Task",
]
