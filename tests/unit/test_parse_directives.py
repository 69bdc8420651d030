from __future__ import annotations

import pytest

from pipeline.parse.directives import Directives, from_header, from_meta, product_token


@pytest.mark.parametrize(
    ("content", "index", "follow"),
    [
        ("", True, True),
        ("index, follow", True, True),
        ("noindex", False, True),
        ("NoFollow", True, False),
        ("none", False, False),
        ("max-snippet:20, noindex ,nofollow", False, False),
        ("noindex nofollow", False, False),
        ("index, noindex", False, True),
        ("noindexing", True, True),
    ],
)
def test_the_strictest_directive_of_a_meta_element_wins(content, index, follow):
    """A site's wish is never shortened."""
    assert Directives(index, follow) == from_meta(content)


@pytest.mark.parametrize(
    ("lines", "index", "follow"),
    [
        (["noindex"], False, True),
        (["noindex", "nofollow"], False, False),
        (["otherbot: noindex, nofollow"], True, True),
        (["headrace: noindex", "otherbot: nofollow"], False, True),
        (["HeadRace: none"], False, False),
        (["*: noindex"], False, True),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"], False, True),
        (["max-snippet: 10"], True, True),
        (["otherbot: index, headrace: nofollow"], True, False),
    ],
)
def test_a_header_binds_the_robot_that_it_names(lines, index, follow):
    """What another robot is told is not our business; a directive's own colon names no robot."""
    assert Directives(index, follow) == from_header(lines, "headrace")


def test_the_product_token_is_what_stands_before_the_version():
    """Sites address us by it."""
    assert ["headrace", "a", ""] == [product_token(agent) for agent in ("headrace/0.1 (+https://h.test)", "a b/1", "")]
