"""Hostile chat templates: no code, no files, no runaway memory or time. Each ends in a TemplateError, quickly."""

from __future__ import annotations

import tracemalloc

import pytest

from isobit.errors import TemplateError
from isobit.text import budget
from isobit.text.template import ChatTemplate

ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ ().__class__.__base__.__subclasses__() }}",
    # As in CVE-2024-34359: a way to the imports through the classes that Python has loaded.
    "{% for c in ().__class__.__base__.__subclasses__() %}{% if c.__name__ == 'catch_warnings' %}"
    "{{ c()._module.__builtins__['__import__']('os').system('true') }}{% endif %}{% endfor %}",
    # As in CVE-2026-5760: through the helpers that Jinja itself offers.
    "{{ lipsum.__globals__['os'].popen('true').read() }}",
    "{{ cycler.__init__.__globals__.os.popen('true').read() }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.environment.loader.x }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ raise_exception.__globals__.os }}",
    "{{ strftime_now.__self__._clock.x }}",
    "{{ range.__class__.__base__ }}",
    "{{ ('' | attr('__class__')).x }}",
    "{{ [''] | map(attribute='__class__') | map(attribute='__mro__') | list }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ ['{0.__class__}'] | map('format', '') | list }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{% set f = '{0.__class__}'.format %}{{ f('') }}",
    "{{ dict.fromkeys([1]) }}",
    "{{ dict.update(messages[0], role='x') }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='x') }}",
    "{{ ''.encode().__class__.fromhex('00') }}",
    "{% include '/etc/hostname' %}",
    "{% import '/etc/hostname' as x %}",
    "{% from '/etc/hostname' import x %}",
    "{% extends '/etc/hostname' %}",
    "{% autoescape true %}x{% endautoescape %}",
    "{{ [1, 2] | random }}",
    "{{ [1] | map('upper') }}",
    "{{ ''.upper }}",
    "{{ namespace(a=1) }}",
]

GROW = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x }}"
HOARD = "{% set ns = namespace(x='a' * 100000, l=[]) %}{% for i in range(99999) %}STEP{% endfor %}"
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}STEP{% endfor %}{% endfor %}"
# Two long texts that differ only at their end, one of them very often in a list.
ALIKE = "{% set t = 'a' * 999999 ~ 'b' %}{% set u = 'a' * 999999 ~ 'c' %}{% set l = [t] * 400000 %}"


def _grow(start: str, step: str) -> str:
    return GROW.replace("START", start).replace("STEP", step)


RUNS = [
    LOOPS.replace("STEP", ""),
    LOOPS.replace("STEP", "x" * 1000),
    LOOPS.replace("STEP", "{% set x = 1 %}"),
    "{% set x %}" + LOOPS.replace("STEP", "x" * 10000) + "{% endset %}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% block a %}{{ self.a() }}{% endblock %}",
]

BOMBS = [
    "{{ 'a' * 10 ** 9 }}",
    "{% set x = 10 ** 9 * 'a' %}",
    "{% set x = [0] * 10 ** 10 %}",
    "{% set x = (0,) * 10 ** 10 %}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 2 ** -(10 ** 10) }}",
    _grow("3", "ns.x * ns.x"),
    _grow("'a'", "ns.x + ns.x"),
    _grow("'a'", "ns.x ~ ns.x"),
    _grow("'a'", "[ns.x, ns.x] | join"),
    _grow("'a'", "ns.x.join(['', '', ''])"),
    _grow("'aa'", "ns.x.replace('a', ns.x)"),
    _grow("'aa'", "ns.x | replace('a', ns.x)"),
    _grow("'%s'", "'%s%s' % (ns.x, ns.x)"),
    _grow("[1]", "ns.x + ns.x"),
    _grow("[1]", "[ns.x, ns.x]"),
    _grow("(1,)", "(ns.x, ns.x)"),
    _grow("{}", "{'a': ns.x, 'b': ns.x}"),
    _grow("{}", "dict(a=ns.x, b=ns.x)"),
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = y %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[]) %}{% set ns.x = [ns] %}{{ ns.x }}",
    HOARD.replace("STEP", "{% set ns.l = ns.l + [ns.x[1:]] %}"),
    HOARD.replace("STEP", "{% set ns.l = ns.l + [ns.x.upper()] %}"),
    HOARD.replace("STEP", "{% set ns.l = ns.l + [ns.x | lower] %}"),
    HOARD.replace("STEP", "{% set ns.l = ns.l + [ns.x ~ i] %}"),
    ALIKE + "{{ u in l }}",
    ALIKE + "{{ l == [u] * 400000 }}",
    ALIKE + "{{ l.index(u) }}",
    ALIKE + "{{ l | select('==', u) | list | length }}",
    ALIKE + "{{ (l + [u]) | sort | length }}",
    ALIKE + "{{ l | join | length }}",
    "{{ ('a ' * 10 ** 7).split(' ') | length }}",
    "{{ ('a' * 10 ** 8) | list | length }}",
    "{{ ('a' * 10 ** 8) | select | list | length }}",
    "{{ ('a' * 10 ** 8) | sort | length }}",
    "{{ ('a' * 10 ** 8) | join | length }}",
    "{{ ''.join('a' * 10 ** 8) | length }}",
    "{% macro f() %}{{ varargs | length }}{% endmacro %}{{ f(*('a' * 10 ** 8)) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '%(x)999999999d' % {'x': 1} }}",
    "{{ '%.999999999f' % 1.5 }}",
    "{{ 'a'.ljust(10 ** 9) }}",
    "{{ 'a'.zfill(10 ** 9) }}",
    "{{ '\t'.expandtabs(10 ** 9) }}",
    "{{ 'a'.translate({97: 'b' * 100000}) }}",
    "{{ 'a' | center(10 ** 9) }}",
    "{{ 'a' | indent(10 ** 9, true) }}",
    "{{ [1] | tojson(indent=10 ** 9) }}",
    "{{ [1] | batch(10 ** 9, 0) | list }}",
    "{{ ([[0] * 1000] * 1000) | sum(start=[]) }}",
    "{{ 5 | round(-(10 ** 9)) }}",
    "{{ 5.5 | round(10 ** 9, 'floor') }}",
    "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "{{ " + "[" * 5000 + "]" * 5000 + " }}",
]


def _render(source: str) -> str:
    return ChatTemplate(source, bos_token="", eos_token="").render([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out(source: str) -> None:
    try:
        text = _render(source)
    except TemplateError:
        return
    assert text == ""  # what is forbidden may also just be undefined


@pytest.fixture
def tenth_of_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less of the same, so that the tests are quick. The seconds stay out of it: they are the last resort."""
    monkeypatch.setattr(budget, "MAX_STEPS", budget.MAX_STEPS // 10)
    monkeypatch.setattr(budget, "MAX_CHARACTERS", budget.MAX_CHARACTERS // 10)
    monkeypatch.setattr(budget, "MAX_SECONDS", 50.0)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("tenth_of_limits")
@pytest.mark.parametrize("source", RUNS, ids=range(len(RUNS)))
def test_no_endless_run(source: str) -> None:
    with pytest.raises(TemplateError):
        _render(source)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("tenth_of_limits")
@pytest.mark.parametrize("source", BOMBS, ids=range(len(BOMBS)))
def test_no_runaway_memory(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            _render(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * budget.MAX_CHARACTERS + 10_000_000


def test_time_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", -1.0)
    with pytest.raises(TemplateError, match="runs longer than"):
        _render("{% for i in [1] %}{% endfor %}")


def test_limits_are_for_one_render_only() -> None:
    template = ChatTemplate("{% for i in range(99999) %}{% endfor %}ok", bos_token="", eos_token="")
    assert [template.render([{"role": "user", "content": "Hi"}]) for _ in range(12)] == ["ok"] * 12


def test_long_honest_chats_pass() -> None:
    source = (
        "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.role + m.content %}{% endfor %}"
    )
    chat = [{"role": "user", "content": "x" * 5000} for _ in range(100)]
    assert len(ChatTemplate(source + "{{ ns.t }}", bos_token="", eos_token="").render(chat)) == 100 * 5004
