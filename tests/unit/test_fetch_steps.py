from __future__ import annotations

import asyncio

from pipeline.fetch.steps import Step, is_watched, tell, watched


async def test_steps_go_to_who_looks_and_to_nobody_else():
    """Two fetches of one process must not be mixed, nor anything kept while nobody looks."""
    seen: dict[str, list[Step]] = {"one": [], "two": []}

    async def fetch(name: str) -> None:
        with watched(seen[name].append):
            assert is_watched()
            await asyncio.sleep(0)
            tell("gate", domain=name)
            await asyncio.create_task(resolve(name))
        tell("gate", domain="nobody looks")

    async def resolve(name: str) -> None:
        tell("dns", host=name)

    await asyncio.gather(fetch("one"), fetch("two"))
    assert not is_watched()
    assert {name: [Step("gate", {"domain": name}), Step("dns", {"host": name})] for name in seen} == seen
