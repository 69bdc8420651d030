"""The error tree: each branch names who must act."""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of all errors that Headrace raises on purpose."""


class ConfigurationError(HeadraceError):
    """The operator must act: a key, a value, a topic or a directory is wrong."""


class InputError(HeadraceError):
    """The sender must act: the record becomes a dead letter.

    Attributes:
        reason: machine-readable, one of `pipeline.delivery.dead_letters.REASONS`.
        field: the field at fault, empty where the whole record is.
    """

    def __init__(self, reason: str, message: str, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.reason = reason
        self.field = field


class SiteError(HeadraceError):
    """The site must act, or nobody: the fetch ends as an outcome.

    Attributes:
        reason: machine-readable, goes to the outcome's `reason`.
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class BrokerError(HeadraceError):
    """The cluster must act: retried for a while, then the worker exits and is started anew."""


class BugError(HeadraceError):
    """We must act: a thing that the code rules out has happened. The worker exits; nothing is repaired in place."""
