"""How much a chat template may do: a model file brings the template, so it may be hostile.

Every render has one budget of steps, of characters and of seconds. What a template builds is paid for before or
as it is built, so neither memory nor time runs away. The seconds only end what the other two would end later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar

from jinja2 import Undefined

from isobit.errors import TemplateError

MAX_STEPS = 1_000_000  # loop passes, calls, filters, lists walked through
MAX_CHARACTERS = 1 << 27  # of all texts and values ever built in one render
MAX_SECONDS = 10.0
ITEM_COST = 8  # characters that an item of a list stands for: the size of its reference
CHARACTERS_AT_ONCE = 64  # that are searched or compared at the cost of one that is built

_current: ContextVar[Budget] = ContextVar("isobit_template_budget")


class Budget:
    """The budget of one render. Used as a context manager, it is the current one inside."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._characters = MAX_CHARACTERS
        self._deadline = time.monotonic() + MAX_SECONDS

    def __enter__(self) -> None:
        self._token = _current.set(self)

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)

    def step(self) -> None:
        """Pays for one step; raises TemplateError when steps or time are used up."""
        self._steps -= 1
        if self._steps < 0:
            raise TemplateError(
                f"the chat template runs more than {MAX_STEPS} steps; it is broken or hostile, use --raw"
            )
        if time.monotonic() > self._deadline:
            raise TemplateError(
                f"the chat template runs longer than {MAX_SECONDS:g} s; it is broken or hostile, use --raw"
            )

    def pay(self, characters: int) -> None:
        """Pays for a value of that many characters; raises TemplateError when too much is built."""
        self._characters -= characters
        if self._characters < 0:
            raise TemplateError(
                f"the chat template builds more than {MAX_CHARACTERS} characters; "
                "shorten the messages, or use --raw if the template is broken"
            )


def current() -> Budget:
    """The budget of the render that is going on."""
    return _current.get()


def pay_for(value: object) -> None:
    """Pays for the memory of a value just built; what it refers to was paid for before."""
    if isinstance(value, str):
        current().pay(len(value))
    elif isinstance(value, (list, tuple, dict, range)):
        current().pay(ITEM_COST * (1 + len(value)))
    elif isinstance(value, int):
        current().pay(1 + value.bit_length() // 32)


def pay_for_all(value: object) -> None:
    """Pays for walking through a value and all that it refers to, as often as it refers to it.

    A list of twice the same list, and so on, costs a walk that doubles with each level.
    """
    if isinstance(value, (list, tuple)):
        current().step()
        for item in value:
            pay_for_all(item)
    elif isinstance(value, Mapping):
        current().step()
        for key, item in value.items():
            pay_for_all(key)
            pay_for_all(item)
    else:
        current().pay(1 + len(value) // CHARACTERS_AT_ONCE if isinstance(value, str) else 1)


def pay_for_text(value: object) -> None:
    """Pays for the text of a value before it is made.

    Raises TemplateError for values without a proper text (functions, namespaces, iterators): theirs would
    hold addresses, which differ from run to run.
    """
    budget = current()
    budget.step()
    if isinstance(value, str):
        budget.pay(len(value))
    elif isinstance(value, (list, tuple)):
        for item in value:
            pay_for_text(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            pay_for_text(key)
            pay_for_text(item)
    elif value is not None and not isinstance(value, (int, float, Undefined)):
        raise TemplateError(f"the chat template uses a {type(value).__name__} as text; it is broken, use --raw")
