"""Cases on a real broker use the fixtures of the integration tests."""

from tests.integration.conftest import offsets, reader, stage_factory

__all__ = ["offsets", "reader", "stage_factory"]
