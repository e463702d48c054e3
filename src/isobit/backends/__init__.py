"""Backends: each runs a program over a batch and gives the bits of docs/numerics.md."""
