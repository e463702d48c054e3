"""The engine: requests in, tokens out, one step at a time."""

from isobit.engine.engine import Engine, Token
from isobit.engine.pages import PagePool, Sequence
from isobit.engine.request import Request

__all__ = ["Engine", "PagePool", "Request", "Sequence", "Token"]
