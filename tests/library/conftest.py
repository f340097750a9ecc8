import pytest


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The training step and the predictor of a small network, exported once."""
    from library_samples import digits_functions, export_loaded

    return export_loaded(digits_functions(), tmp_path_factory.mktemp("digits") / "libdigits.so")
