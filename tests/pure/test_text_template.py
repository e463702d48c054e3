"""Chat templates: what Hugging Face's environment gives them, checked messages, and clear refusals."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest

from isobit.errors import InputError, TemplateError
from isobit.text.template import MAX_SOURCE, ChatTemplate, Clock
from isobit.text.tokenizer import load_tokenizer
from pure.text_vocabularies import byte_pairs

USER = {"role": "user", "content": "Hi"}
CHAT = """\
{{ bos_token }}
{% for message in messages %}
    {% if message.role == 'system' %}
        {% continue %}
    {% endif %}
<{{ message['role'] }}>{{ message['content'] | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}<assistant>{% endif %}
"""


def _template(source: str, clock: Clock | None = None) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", clock=clock)


def _render(source: str, **variables: object) -> str:
    return _template(source).render([USER], **variables)  # type: ignore[arg-type]


def test_blocks_are_trimmed_and_loops_controlled() -> None:
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": " Hi "}]
    template = _template(CHAT)
    assert template.render(messages) == "<s>\n<user>Hi</s>\n<assistant>"
    assert template.render(messages, add_generation_prompt=False) == "<s>\n<user>Hi</s>\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'b': 1, 'a': 'é<\"'} | tojson }}", '{"b": 1, "a": "é<\\""}'),
        ("{{ [1, {'a': 2}] | tojson(indent=2) }}", '[\n  1,\n  {\n    "a": 2\n  }\n]'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{% generation %}a{{ messages[0].content }}{% endgeneration %}b", "aHib"),
        ("{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "10"),
        ("{% for i in [3, 1, 2] | sort %}{{ loop.index0 }}{{ i }}{{ ',' if not loop.last }}{% endfor %}", "01,12,23"),
        ("{% for k, v in {'a': 1}.items() %}{{ k ~ v }}{% else %}none{% endfor %}", "a1"),
        ("{% for i in range(9) if i % 4 == 0 %}{{ i }}/{{ loop.length }} {% endfor %}", "0/3 4/3 8/3 "),
        ("{% macro f(x, y=[1]) %}<{{ x }}{{ y }}>{% endmacro %}{{ f('a') }}{{ f('b', y=2) }}", "<a[1]><b2>"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x + x }}", "a1a1"),
        ("{{ 'a,b'.split(',')[-1] }}{{ 'abc'[1:] }}{{ messages[::-1][0].role }}", "bbcuser"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages | map(attribute='content') | join('+') }}{{ [1, 2] | sum }}", "Hi3"),
        ("{{ 'Hi' in messages[0].content }}{{ 1 < 2 < 3 }}{{ messages[0] == messages[0] }}", "TrueTrueTrue"),
        ("{{ '%s=%d' % ('a', 3) }}{{ 'ab' | replace('a', 'x') }}{{ 'a\nb' | indent(2) }}", "a=3xba\n  b"),
        ("{{ '-' * 3 }}{{ 2 ** 10 }}{{ 7 // 2 }}{{ 'x' | upper }}{{ 'a b' | title }}", "---10243XA B"),
        ("{{ missing }}{{ missing is defined }}{{ missing | default('d') }}{{ none }}", "FalsedNone"),
        ("{{ tools is none }}{{ documents is none }}{{ bos_token }}{{ eos_token }}", "TrueTrue<s></s>"),
        ("{{ {'a': [1, none, 2.5, true]} }}", "{'a': [1, None, 2.5, True]}"),
        ("{{ (1, 2) }}{{ [1] + [2] }}{{ [0] * 2 }}{{ dict(a=1) }}", "(1, 2)[1, 2][0, 0]{'a': 1}"),
        ("{{ '<b>' | safe }}{{ '<b>' }}{{ '<' | e }}", "<b><b>&lt;"),
        ("a\r\n{# comment #}b\n", "a\nb"),
    ],
)
def test_what_templates_use(source: str, expected: str) -> None:
    assert _render(source) == expected


def test_variables_and_tools_reach_the_template() -> None:
    source = "{{ thinking }}{{ opts.a[0] }}{{ tools[0].name }}"
    assert _render(source, thinking=False, opts={"a": (1,)}, tools=[{"name": "f"}]) == "False1f"
    with pytest.raises(InputError, match="'bos_token' is set by the model"):
        _render("", bos_token="x")
    with pytest.raises(InputError, match="variable 'f' is a function"):
        _render("", f=lambda: 1)
    with pytest.raises(InputError, match=r"tools\[0\]\['x'\] is a set"):
        _render("", tools=[{"x": {1}}])


def test_the_date_comes_from_the_clock_only() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    with pytest.raises(TemplateError, match="pass a date"):
        _render(source)
    assert _template(source, lambda: datetime.datetime(2024, 7, 26)).render([USER]) == "26 Jul 2024"
    with pytest.raises(TemplateError, match="not allowed"):
        _template("{{ strftime_now('%9999999Y') }}", lambda: datetime.datetime(2024, 7, 26)).render([USER])


def test_a_template_can_refuse() -> None:
    with pytest.raises(TemplateError, match="refuses these messages: roles must alternate"):
        _render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", "line 1: Expected an expression"),
        ("\n\n{{ 1 | nope }}", "line 3: No filter named 'nope'"),
        ("{{ messages[0].content.foo.bar }}", "has no attribute 'foo'"),
        ("{{ nope() }}", "'nope' is undefined"),
        ("{{ 1 // 0 }}", "by zero"),
        ("{{ 'a' + 1 }}", "str"),
        ("{{ raise_exception }}", "a function as text"),
        ("x" * (MAX_SOURCE + 1), "characters, expected at most"),
    ],
)
def test_broken_templates(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        _render(source)


def test_from_metadata() -> None:
    tokenizer = load_tokenizer(byte_pairs())
    metadata = {"tokenizer.chat_template": "{{ bos_token }}|{{ eos_token }}"}
    assert ChatTemplate.from_metadata(metadata, tokenizer).render([USER]) == "<s>|</s>"
    for missing in ({}, {"tokenizer.chat_template": None}):
        with pytest.raises(TemplateError, match="--raw"):
            ChatTemplate.from_metadata(missing, tokenizer)


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert _template("{{ messages[0].content }}").render([{"role": "user", "content": parts}]) == "ab"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "empty"),
        ("hello", "are a str"),
        ({"role": "user", "content": "x"}, "are a dict"),
        (["x"], "message 0 is a str"),
        ([USER, {"content": "x"}], "message 1 has the role None"),
        ([{"role": 3, "content": "x"}], "role 3"),
        ([{"role": "", "content": "x"}], "role ''"),
        ([{"role": "user"}], "no 'content'"),
        ([{"role": "user", "content": None}], "no 'content'"),
        ([{"role": "user", "content": 5}], "content of type int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'image_url'; only 'text'"),
        ([{"role": "user", "content": ["x"]}], "of type None"),
        ([{"role": "user", "content": [{"type": "text"}]}], "'text' is of type NoneType"),
        ([{"role": "user", "content": "a\udc80"}], "surrogate at position 1"),
        ([{"role": "user", "content": "x", 3: 4}], "key 3"),
        ([{"role": "user", "content": "x", "call": print}], "message 0, 'call' is a builtin"),
    ],
)
def test_bad_messages_are_refused(messages: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _template("").render(messages)  # type: ignore[arg-type]


def test_endless_data_is_refused() -> None:
    data: list[object] = []
    data.append(data)
    with pytest.raises(InputError, match="nested more than"):
        _render("", data=data)


def test_the_callers_messages_stay_as_they_are() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    _template("{% set m = messages[0] %}{{ m.content }}").render([message])
    assert message == {"role": "user", "content": [{"type": "text", "text": "a"}]}


def test_many_threads() -> None:
    template = _template(CHAT)
    chats = [[{"role": "user", "content": f"{number}"}] * 5 for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(template.render, chats)) == [template.render(chat) for chat in chats]
