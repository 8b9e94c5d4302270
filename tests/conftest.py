"""Options and fixtures shared by all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from mgpu_fix.observe import Observer

# How long an example takes is the machine's affair.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-cases", action="store_true", help="rewrite the recordings of the golden cases")


@pytest.fixture(scope="session")
def observer() -> Iterator[Observer]:
    """One warm observer for all live tests."""
    with Observer() as shared:
        shared.start()
        yield shared
