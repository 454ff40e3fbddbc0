"""A module that the tests import. The test that uses it is left out."""
