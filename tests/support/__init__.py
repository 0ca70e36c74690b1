"""Tests of what the other tests stand on."""
