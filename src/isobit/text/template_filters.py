"""The filters and tests of chat templates: Jinja's, on a budget, and `tojson` as Hugging Face has it.

Left out are those that no chat template needs and that pad, format, choose at random or reach attributes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.tests import TESTS as JINJA_TESTS

from isobit.errors import TemplateError
from isobit.text import budget

# Filters whose result is no larger than what they get, by what they read of it.
_ON_TEXT = ["capitalize", "e", "escape", "float", "int", "lower", "safe", "string", "title", "trim", "upper"]
_ON_ALL = ["list", "max", "min", "unique"]
_ON_SURFACE = ["map", "reject", "rejectattr", "reverse", "select", "selectattr"]
_ON_NOTHING = ["abs", "count", "d", "default", "first", "items", "last", "length"]
_COMPARISONS = ["==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">=", "<", "lt", "lessthan"]
_COMPARISONS += ["le", "<=", "in", "divisibleby", "lower", "upper"]
_SORTING = ["dictsort", "sort"]
_SORT_COST = 20  # walks through each item

_MAX_INDENT = 64
_MAX_DIGITS = 100
# A width or precision over 99 or from the values, or a name in brackets, behind which one could hide.
_TOO_WIDE = re.compile(r"%\(|%[-#0 +]*(?:\d{3}|\*|\d*\.(?:\d{3}|\*))")


def replace_cost(text: str, old: object, new: object) -> int:
    """Upper bound of the characters of text.replace(old, new)."""
    if not isinstance(old, str) or not isinstance(new, str):
        return 0  # Python refuses it
    return len(text) + text.count(old) * len(new)


def pay_for_items(value: object) -> None:
    """Pays for walking through a value whose items are then listed; a text's items are its characters."""
    if isinstance(value, str):
        budget.current().pay(budget.ITEM_COST * len(value))
    else:
        budget.pay_for_all(value)


def checked_format(text: str, values: object) -> str:
    """text % values; raises TemplateError for widths that could reserve any amount of memory."""
    if _TOO_WIDE.search(text):
        raise TemplateError("the chat template formats with a width of more than 99 or with names; use --raw")
    budget.pay_for_text(values)
    result: str = text % values
    budget.pay_for(result)
    return result


def _metered(function: Callable[..., Any], pay: Callable[[Any], None]) -> Callable[..., Any]:
    # `wraps` keeps Jinja's mark that says whether a filter wants the environment or the context first.
    passes = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        budget.current().step()
        pay(args[passes])
        result = function(*args, **kwargs)
        budget.pay_for(result)
        return result

    return metered


def _metered_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def metered(*args: Any) -> Any:
        budget.current().step()
        budget.pay_for_all(args)
        return function(*args)

    return metered


def _pay_for_sorting(value: object) -> None:
    for _ in range(_SORT_COST):
        pay_for_items(value)


def _pay_for_surface(value: object) -> None:
    budget.current().pay(budget.ITEM_COST * len(value) if isinstance(value, (str, list, tuple, dict)) else 1)


def _pay_nothing(value: object) -> None:
    pass


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, without Jinja's escapes for HTML."""
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= _MAX_INDENT):
        raise TemplateError(f"the chat template asks for an indent of {indent!r:.40}, expected 0 to {_MAX_INDENT}")
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    budget.pay_for(text)
    return text


def _join(env: Any, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    items = list(value)
    budget.pay_for_text(items)
    budget.current().pay(len(d) * len(items))
    text: str = JINJA_FILTERS["join"](env, items, d, attribute)
    return text


_join.jinja_pass_arg = JINJA_FILTERS["join"].jinja_pass_arg  # type: ignore[attr-defined]


def _replace(env: Any, s: Any, old: str, new: str, count: int | None = None) -> str:
    text = str(s)
    budget.current().pay(replace_cost(text, str(old), str(new)))
    result: str = JINJA_FILTERS["replace"](env, text, old, new, count)
    return result


_replace.jinja_pass_arg = JINJA_FILTERS["replace"].jinja_pass_arg  # type: ignore[attr-defined]


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    size = len(width) if isinstance(width, str) else width
    if size > _MAX_INDENT:
        raise TemplateError(f"the chat template indents by {size}, expected at most {_MAX_INDENT}")
    budget.current().pay((1 + s.count("\n")) * max(size, 0))
    text: str = JINJA_FILTERS["indent"](s, width, first, blank)
    return text


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > _MAX_DIGITS:
        raise TemplateError(f"the chat template rounds to {precision} digits, expected at most {_MAX_DIGITS}")
    number: float = JINJA_FILTERS["round"](value, precision, method)
    return number


def _sum(env: Any, iterable: Iterable[Any], attribute: str | int | None = None, start: float = 0) -> float:
    if not isinstance(start, (int, float)):
        raise TemplateError("the chat template sums something other than numbers; it is broken, use --raw")
    number: float = JINJA_FILTERS["sum"](env, iterable, attribute, start)
    return number


_sum.jinja_pass_arg = JINJA_FILTERS["sum"].jinja_pass_arg  # type: ignore[attr-defined]

FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _metered(JINJA_FILTERS[name], budget.pay_for_text) for name in _ON_TEXT},
    **{name: _metered(JINJA_FILTERS[name], pay_for_items) for name in _ON_ALL},
    **{name: _metered(JINJA_FILTERS[name], _pay_for_sorting) for name in _SORTING},
    **{name: _metered(JINJA_FILTERS[name], _pay_for_surface) for name in _ON_SURFACE},
    **{name: _metered(JINJA_FILTERS[name], _pay_nothing) for name in _ON_NOTHING},
    "tojson": _metered(_tojson, budget.pay_for_text),
    "join": _metered(_join, _pay_for_surface),
    "replace": _metered(_replace, budget.pay_for_text),
    "indent": _metered(_indent, budget.pay_for_text),
    "round": _metered(_round, _pay_nothing),
    "sum": _metered(_sum, budget.pay_for),
}

_tests: dict[str, Any] = dict(JINJA_TESTS)
TESTS: dict[str, Callable[..., Any]] = {**_tests, **{name: _metered_test(_tests[name]) for name in _COMPARISONS}}
