"""The examples in docstrings give the results that they show."""

import doctest
import importlib
import pkgutil

import pytest

import wcl

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(wcl.__path__, "wcl.")
    if not name.endswith("__main__")
]


def examples_of(name: str) -> list[doctest.DocTest]:
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_the_results_that_they_show(name: str) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in examples_of(name):
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_there_are_examples_to_run() -> None:
    found = {test.name for name in MODULES for test in examples_of(name)}
    assert {
        "wcl.ops.weak_labels.weak_labels",
        "wcl.ops.losses.nt_xent",
        "wcl.training.optimizers.lr_at",
    } <= found
    assert len(found) >= 6
