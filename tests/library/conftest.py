import os
import sys

import pytest

HERE = os.path.dirname(__file__)
sys.path.insert(0, HERE)
for other in ("passes", "native"):  # their random graphs
    sys.path.append(os.path.join(os.path.dirname(HERE), other))


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The training step and the predictor of a small network, exported once."""
    from library_samples import digits_functions, export_loaded

    return export_loaded(digits_functions(), tmp_path_factory.mktemp("digits") / "libdigits.so")
