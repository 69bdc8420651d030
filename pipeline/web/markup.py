"""Start tags in the first bytes of an HTML document, found without a parser: for what must be known before parsing.

No bytes make it slow: it goes through them once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

_TAG: Final = re.compile(rb"<(?:(?P<comment>!--)|(?P<name>[A-Za-z][^\t\n\f\r />]*)|[!/?])")
_ATTRIBUTE_NAME: Final = re.compile(rb"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)?[\t\n\f\r ]*")
_ATTRIBUTE_VALUE: Final = re.compile(
    rb"=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|(?=>)|([^\t\n\f\r >\"'][^\t\n\f\r >]*)(?=[\t\n\f\r >]))"
)


class Attributes:
    """The attributes of a tag (HTML 13.2.3.2, "get an attribute").

    Args:
        data: the document.
        position: of the byte behind the tag's name.

    Attributes:
        values: by name in lower case, as written; the first of a name counts.
        end: position of the byte that ends the tag.
        complete: whether the data reaches that far; otherwise nothing in the tag may be believed.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self.values: dict[bytes, bytes] = {}
        self.end = position
        self.complete = self._read(data)

    def _read(self, data: bytes) -> bool:
        while attribute := _ATTRIBUTE_NAME.match(data, self.end):
            self.end = attribute.end()
            following = data[self.end : self.end + 1]
            if not following:
                return False
            if not attribute[1]:
                break
            value = b""
            if following == b"=":
                written = _ATTRIBUTE_VALUE.match(data, self.end)
                if written is None:
                    return False
                self.end = written.end()
                value = b"".join(filter(None, written.groups()))
            self.values.setdefault(attribute[1].lower(), value)
        return True


def start_tags(data: bytes, inert: Collection[bytes]) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """Yield the start tags of a document: name in lower case, and attributes.

    Args:
        data: the document, or its beginning; a tag that is cut by its end is left out.
        inert: names, in lower case, of elements whose content is passed over.
    """
    lowered = data.lower()
    position = 0
    while tag := _TAG.search(data, position):
        if tag["name"] is None:
            closing = b"-->" if tag["comment"] else b">"
            end = data.find(closing, tag.start() + len(b"<!"))  # the dashes of a comment may be the same: <!-->
            if end < 0:
                return
            position = end + len(closing)
            continue
        attributes = Attributes(data, tag.end())
        if not attributes.complete:
            return
        name = tag["name"].lower()
        yield name, attributes.values
        position = attributes.end
        if name in inert:
            position = lowered.find(b"</" + name, position)
            if position < 0:
                return
