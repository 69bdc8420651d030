"""The fixtures of tests with toy stages serve here, too."""

from tests.integration.conftest import offsets, reader, stage_factory

__all__ = ["offsets", "reader", "stage_factory"]
