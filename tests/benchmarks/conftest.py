from collections.abc import Iterator

import pytest

from mue.kernels import plan


@pytest.fixture(scope="module", autouse=True)
def nothing_is_compiled() -> Iterator[None]:
    """Checked types do not compile: what is measured here runs as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "COMPILE_PAYS", {"cpu": 1 << 62, "cuda": 1 << 62})
        yield
