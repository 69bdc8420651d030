"""Our schemas in a registry: put there, and compared with what is there.

A registry names subjects after topics (TopicNameStrategy), so a schema that serves several topics stands under the
subject of each; its id is one, because ids belong to contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.contracts.lock import BUILT_IN, Lock, LockedSubject, LockedVersion, read_lock
from pipeline.contracts.registry import FULL_TRANSITIVE, RegisteredSchema, SchemaRegistry
from pipeline.contracts.schemas import Schema, canonical_sha256, read_schemas
from pipeline.errors import ConfigurationError
from pipeline.topics import TABLE, Topic


def registry_subject(topic: Topic) -> str:
    """Name of a topic's value subject in a registry, by TopicNameStrategy."""
    return f"{topic.name}-value"


def register_schemas(
    registry: SchemaRegistry,
    schemas: Sequence[Schema],
    *,
    topics: Iterable[Topic] = TABLE,
    held: Lock | None = None,
) -> Lock:
    """Put schemas into a registry under every topic they serve, with FULL_TRANSITIVE; what is there stays.

    Safe to repeat: a run that broke off is finished by the next one.

    Args:
        registry: where to.
        schemas: in the order they are to be added, versions of a subject in theirs.
        topics: the topics whose subjects are filled.
        held: a lock whose `writes` stay as they are, so that new versions are readable before they are written.

    Returns:
        The ids.

    Raises:
        BrokerError: the registry is down.
        ConfigurationError: it refuses a schema, or gives one schema two ids.
    """
    places: dict[str, list[str]] = {}
    for topic in topics:
        places.setdefault(topic.subject, []).append(registry_subject(topic))
    there = {place: registry.versions(place) for names in places.values() for place in names}
    for place in there:
        registry.set_compatibility(place)
    # Each content once before any is repeated: a registry that counts repeated ones then gives the same ids as long
    # as the order is the same, which the built-in lock relies on.
    ids = {schema: _register_once(registry, schema, there, places[schema.subject][0]) for schema in schemas}
    for schema, schema_id in ids.items():
        for place in places[schema.subject][1:]:
            other = _register_once(registry, schema, there, place)
            if other != schema_id:
                raise ConfigurationError(
                    f"registry {registry.label}: {schema.subject} v{schema.version} has id {schema_id} under "
                    f"{places[schema.subject][0]} and {other} under {place}: ids must belong to contents"
                )
    return _lock(registry.label, ids, held)


def _register_once(
    registry: SchemaRegistry, schema: Schema, there: Mapping[str, Sequence[RegisteredSchema]], place: str
) -> int:
    found = _find(schema, there[place])
    return found.id if found else registry.register(place, schema.text)


def _find(schema: Schema, there: Iterable[RegisteredSchema]) -> RegisteredSchema | None:
    """The registry's version with the same canonical form: texts may differ in docs and in spaces."""
    for registered in there:
        if registered.document is not None and canonical_sha256(registered.document) == schema.canonical_sha256:
            return registered
    return None


def _lock(label: str, ids: Mapping[Schema, int], held: Lock | None) -> Lock:
    subjects: dict[str, dict[int, LockedVersion]] = {}
    for schema, schema_id in ids.items():
        subjects.setdefault(schema.subject, {})[schema.version] = LockedVersion(schema_id, schema.canonical_sha256)
    return Lock(
        label,
        {
            subject: LockedSubject(
                held.subjects[subject].writes if held and subject in held.subjects else max(versions), versions
            )
            for subject, versions in subjects.items()
        },
    )


def fill_local_registry(url: str) -> None:
    """Fill the local stack's registry, which is empty when it starts, so that its ids are those of the built-in lock.

    Raises:
        BrokerError: it is down.
        ConfigurationError: it has given other ids, because it was not empty.
    """
    lock = read_lock()
    schemas = [schema for versions in read_schemas().values() for schema in versions]
    schemas.sort(key=lambda schema: lock.subjects[schema.subject].versions[schema.version].id)
    with SchemaRegistry(url) as registry:
        filled = register_schemas(registry, schemas, held=lock)
    if filled.subjects != lock.subjects:
        raise ConfigurationError(
            f"registry {filled.registry}: its ids are not those of {BUILT_IN.name}: it held other schemas before; "
            "start the local stack with an empty one"
        )


def registry_differences(
    registry: SchemaRegistry,
    schemas: Mapping[str, Sequence[Schema]],
    lock: Lock,
    topics: Iterable[Topic] = TABLE,
) -> Iterator[str]:
    """Yield what a registry has otherwise than the schemas and the lock, one sentence each."""
    for topic in topics:
        place = registry_subject(topic)
        there = registry.versions(place)
        if not there:
            yield f"{place}: not in the registry"
            continue
        level = registry.compatibility(place)
        if level != FULL_TRANSITIVE:
            yield f"{place}: compatibility is {level or 'the default of the registry'}, not {FULL_TRANSITIVE}"
        ours: set[int] = set()
        for schema in schemas.get(topic.subject, ()):
            found = _find(schema, there)
            if found is None:
                yield f"{place}: v{schema.version} is not in the registry"
                continue
            ours.add(found.version)
            subject = lock.subjects.get(topic.subject)
            locked = subject.versions.get(schema.version) if subject else None
            if locked and locked.id != found.id:
                yield f"{place}: v{schema.version} has id {found.id} in the registry and {locked.id} in the lock"
        for registered in there:
            if registered.version not in ours:
                yield f"{place}: the registry's version {registered.version} (id {registered.id}) is none of ours"
