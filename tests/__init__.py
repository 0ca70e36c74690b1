"""The project's tests; a package, so that they share `tests.deadline`, `tests.process` and `tests.tools`."""
