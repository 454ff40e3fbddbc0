"""Tests of dibs in web frameworks."""
