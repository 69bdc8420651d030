"""Series of the API process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram


class ApiMetrics:
    """What is counted.

    Args:
        registry: where the series are.

    Attributes:
        requests: answers, by route and status.
        seconds: time of a request, by route.
        tasks: tasks accepted.
        limited: requests refused by their user's bucket, by class.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "headrace_api_requests_total", "Answers of the API.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram("headrace_api_seconds", "Time of a request.", ["route"], registry=registry)
        self.tasks = Counter("headrace_api_tasks_total", "Tasks accepted.", registry=registry)
        self.limited = Counter("headrace_api_limited_total", "Requests refused by rate.", ["rate"], registry=registry)
