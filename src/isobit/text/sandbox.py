"""The environment in which chat templates run: Jinja's immutable sandbox, cut down and on a budget.

Jinja's sandbox keeps templates from Python's internals (CVE-2024-34359 and its kin ran them without). It does not
keep them from eating memory and time, so here all that can build or repeat is counted, and what chat templates
have no use for is left out: other templates, files, formatting, random choice.
"""

# Jinja's names of methods and arguments:
# ruff: noqa: N802, N805, N815

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

from isobit.errors import TemplateError
from isobit.text import budget
from isobit.text.template_filters import FILTERS, TESTS, checked_format, pay_for_items, replace_cost

_TEXT_METHODS = (
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric "
    "isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex "
    "rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"
)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_TEXT_METHODS.split(" ")),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
}
_MAX_BITS = 1 << 12  # of an integer that a template may compute
_SPLIT_COST = 16  # characters of memory that a split may take for each character of the text


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template. Everything runs inside a `Budget`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, globals_: dict[str, Callable[..., object]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _GenerationExtension],
            finalize=_finalize,
            optimized=False,  # folding constants would run code while the template is only being read
            autoescape=False,
        )
        self.filters = dict(FILTERS)
        self.tests = dict(TESTS)
        own_range = self.globals["range"]  # the sandbox's, at most 100,000 numbers
        self.globals = {"range": own_range, "dict": dict, "namespace": Namespace, **globals_}

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls something for the template, after a look at what it is."""
        budget.current().step()
        if isinstance(__obj, types.BuiltinMethodType):
            _check_method(__obj, args)
        elif not __self._is_callable(__obj):
            raise SecurityError(f"a {type(__obj).__name__} cannot be called in chat templates")
        if __obj is dict or __obj is Namespace:
            budget.pay_for_all([args, kwargs])
        result = super().call(__context, __obj, *args, **kwargs)
        budget.pay_for(result)
        return result

    def _is_callable(self, target: object) -> bool:
        if isinstance(target, types.MethodType):
            return isinstance(target.__self__, (Sandbox, LoopContext)) or self._is_global(target)
        # An undefined one explains itself when called.
        return isinstance(target, (Macro, BlockReference, Undefined)) or self._is_global(target)

    def _is_global(self, target: object) -> bool:
        return any(target is known for known in self.globals.values())

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Leaves str.format out: its widths reserve any amount of memory."""
        if isinstance(value, types.BuiltinMethodType) and value.__name__ in {"format", "format_map"}:
            raise SecurityError("str.format is not available in chat templates")
        return None

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Runs `+`, `*`, `**` and `%` after paying for what they build."""
        budget.current().step()
        if operator == "%" and isinstance(left, str):
            return checked_format(left, right)
        if operator == "+" and isinstance(left, (str, list, tuple)):
            budget.pay_for(left)
            budget.pay_for(right)
        elif operator in {"*", "**"}:
            _pay_for_product(operator, left, right)
        return super().call_binop(context, operator, left, right)

    # The following are called by the nodes that `_Rewriter` puts in.

    def counted(self, iterable: Iterable[object]) -> Iterator[object]:
        """The items of a loop, each one a step."""
        for item in iterable:
            budget.current().step()
            yield item

    def joined(self, *values: object) -> str:
        """The operator `~`."""
        for value in values:
            budget.pay_for_text(value)
        return "".join(map(str, values))

    def built(self, value: object) -> object:
        """A list, tuple or mapping written in the template."""
        budget.pay_for(value)
        budget.pay_for_all(value)
        return value

    def compared(self, value: object) -> object:
        """One side of a comparison, `in` included."""
        budget.pay_for_all(value)
        return value

    def sliced(self, value: Any, start: object, stop: object, step: object) -> object:
        """value[start:stop:step]."""
        return value[start:stop:step]

    def code_of(self, source: str) -> types.CodeType:
        """Parses, rewrites and compiles a template."""
        tree = _Rewriter().visit(self.parse(source))
        return self.compile(tree.set_environment(self))


@pass_context  # so that Jinja does not call it while compiling
def _finalize(context: Context, value: object) -> object:
    budget.pay_for_text(value)
    return value


def _check_method(method: types.BuiltinMethodType, args: tuple[Any, ...]) -> None:
    owner, name = method.__self__, method.__name__
    kind = next((kind for kind in _METHODS if isinstance(owner, kind)), None)
    if kind is None or name not in _METHODS[kind]:
        raise SecurityError(f"the method {name!r} of {type(owner).__name__} is not available in chat templates")
    budget.pay_for_all(owner if isinstance(owner, str) or name in {"count", "index"} else None)
    if not isinstance(owner, str):
        return
    if name == "replace" and len(args) >= 2:
        budget.current().pay(replace_cost(owner, args[0], args[1]))
    elif name == "join" and args:
        if not isinstance(args[0], (str, list, tuple, dict)):
            raise SecurityError("str.join takes a list in chat templates; use the filter 'list' before")
        pay_for_items(args[0])
        budget.pay_for_text(args[0])
        budget.current().pay(len(owner) * len(args[0]))
    elif name in {"split", "rsplit", "splitlines"}:
        budget.current().pay(_SPLIT_COST * len(owner))


def _pay_for_product(operator: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * abs(right)
        if bits > _MAX_BITS:
            raise TemplateError(f"the chat template computes a number of more than {_MAX_BITS} bits; use --raw")
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
            size = 1 if isinstance(sequence, str) else budget.ITEM_COST
            budget.current().pay(max(count, 0) * len(sequence) * size)


class _Rewriter(NodeTransformer):
    """Puts the sandbox's functions in place of what Jinja compiles to plain Python."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise TemplateError("recursive loops are not available in chat templates; use a macro or --raw")
        self.generic_visit(node)
        node.iter = _call("counted", node, [cast(nodes.Expr, node.iter)])
        return node

    def visit_Call(self, node: nodes.Call | nodes.Filter | nodes.Test) -> nodes.Node:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise TemplateError(
                f"line {node.lineno} of the chat template spreads a value over arguments (* or **), which is not "
                "available; use --raw"
            )
        return self.generic_visit(node)

    visit_Filter = visit_Test = visit_Call

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", node, node.nodes)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        nothing = nodes.Const(None)
        ends = [end or nothing for end in (node.arg.start, node.arg.stop, node.arg.step)]
        return _call("sliced", node, [node.node, *ends])

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _compared(node.expr)
        for operand in node.ops:
            operand.expr = _compared(operand.expr)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._built(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._built(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        if node.ctx == "load":
            return self._built(node)
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return nodes.Const(node.data, lineno=node.lineno)  # constants are paid for, bare text would not be

    def _built(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _call("built", node, [node])

    def _refuse(self, node: nodes.Node) -> nodes.Node:
        raise TemplateError(
            f"line {node.lineno} of the chat template holds the statement {type(node).__name__.lower()}, which is not "
            "available: a template stands alone"
        )

    visit_Include = visit_Import = visit_FromImport = visit_Extends = _refuse
    visit_ScopedEvalContextModifier = visit_EvalContextModifier = _refuse


def _compared(side: nodes.Expr) -> nodes.Expr:
    return side if isinstance(side, nodes.Const) else _call("compared", side, [side])


def _call(name: str, place: nodes.Node, args: list[nodes.Expr]) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name, lineno=place.lineno)
    return nodes.Call(function, args, [], None, None, lineno=place.lineno)


class _GenerationExtension(Extension):
    """`{% generation %}…{% endgeneration %}` marks a model's own words for training; here its body just runs."""

    tags = frozenset({"generation"})  # type: ignore[assignment]  # Jinja only reads it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)
