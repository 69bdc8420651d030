"""What the API says, as models: answers are made of them, and so is their description."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Message(BaseModel):
    """Base of all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def body(self) -> bytes:
        """Return it as JSON, without what is not set."""
        return self.model_dump_json(exclude_none=True).encode()


class AcceptedTask(Message):
    """A task that is on the broker."""

    id: str = Field(description="the same for the same crawl and canonical URL")
    crawl: str
    url: str = Field(description="canonical")
    status: str = Field(description="where its status is, relative to this host")


class Accepted(Message):
    """All tasks of a request are on the broker."""

    tasks: list[AcceptedTask]
    repeated: int = Field(0, description="how many more were the same as one of them")


class TaskStatus(Message):
    """What has become of a task."""

    id: str
    crawl: str
    url: str = Field(description="canonical")
    state: str = Field(description="unknown (not read yet, or not kept), waiting, held, out, done or refused")
    why: str = Field("", description="what decided, in a word")
    reason: str = Field("", description="the same more closely, as it is recorded; empty where there is nothing to say")


class Explanation(Message):
    """What the frontier knows of a URL or a domain: the same as `headrace explain --json` prints."""

    model_config = ConfigDict(frozen=True, extra="allow")

    domain: str = Field(description="registrable domain")
    known: bool = Field(description="whether anything is known")


class ProblemError(Message):
    """One thing that is wrong with a task of the request."""

    task: int = Field(description="number of the task in the request, from 0")
    line: int = Field(description="of the body, from 1")
    field: str = Field(description="empty where the whole task is meant")
    detail: str
    nearest: str | None = Field(None, description="the field that was probably meant")


class ProblemDocument(Message):
    """Why a request was refused (RFC 9457)."""

    type: str = Field(description="a reference to the kind of the problem on the page of this API")
    title: str
    status: int
    detail: str | None = None
    errors: list[ProblemError] | None = Field(None, description="everything that is wrong with the tasks")
