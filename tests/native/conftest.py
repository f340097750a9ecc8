import pytest

from graphc.codegen.emission import nest


@pytest.fixture
def schedules(monkeypatch):
    """The schedules of what is compiled meanwhile."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    made, plan = [], nest.plan
    monkeypatch.setattr(nest, "plan", lambda *a, **k: made.append(plan(*a, **k)) or made[-1])
    return made


def pytest_terminal_summary(terminalreporter):
    """What the random graphs were, over all shards and worker processes."""
    counts, total = {}, {}
    for report in terminalreporter.stats.get("passed", ()):
        for key, value in report.user_properties if report.when == "call" else ():
            if key == "ops":
                for op, n in value.items():
                    counts[op] = counts.get(op, 0) + n
            elif key.startswith("random "):
                total[key] = total.get(key, 0) + value
    for key, n in total.items():
        terminalreporter.write_line(f"{key}: {n}")
    if counts:
        ops = ", ".join(f"{op} {n}" for op, n in sorted(counts.items()))
        terminalreporter.write_line(f"{len(counts)} ops in the random graphs: {ops}")
