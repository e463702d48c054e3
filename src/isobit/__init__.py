"""Isobit."""
