"""Chat templates: from messages to the prompt text that a model was trained on.

Templates are written for Hugging Face's `apply_chat_template`, so they find the same names here. They come with
the model file and are not trusted: see `isobit.text.sandbox`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import jinja2

from isobit.errors import InputError, TemplateError
from isobit.text.budget import Budget
from isobit.text.messages import check_messages, plain_data
from isobit.text.sandbox import Sandbox
from isobit.text.tokenizer import Tokenizer

KEY = "tokenizer.chat_template"
MAX_SOURCE = 1 << 18  # characters; the longest known templates have a tenth

Clock = Callable[[], datetime]

# All that a template can raise, none of it our fault: broken syntax, wrong types, endless recursion, and values
# too large for Python's compiler or numbers.
_FAULTS = (
    jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
    MemoryError, SyntaxError,
)  # fmt: skip


class ChatTemplate:
    """A compiled chat template. Immutable, safe to share between threads.

    clock: gives the time to templates that ask for it (`strftime_now`). Without one such a template fails, as
    the same messages would give another prompt every day.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str, clock: Clock | None = None) -> None:
        """Compiles a template; raises TemplateError for one that is broken or asks for what is not available."""
        if len(source) > MAX_SOURCE:
            raise TemplateError(
                f"the chat template has {len(source)} characters, expected at most {MAX_SOURCE}; use --raw"
            )
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._clock = clock
        sandbox = Sandbox({"raise_exception": _raise_exception, "strftime_now": self._strftime_now})
        try:
            code = sandbox.code_of(source)
            self._template = jinja2.Template.from_code(sandbox, code, sandbox.globals)
        except _FAULTS as error:
            raise _as_template_error(error) from error

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, object], tokenizer: Tokenizer, clock: Clock | None = None
    ) -> ChatTemplate:
        """The template of a GGUF file; raises TemplateError where the file has none."""
        source = metadata.get(KEY)
        if not isinstance(source, str):
            raise TemplateError(
                f"the model file has no chat template ({KEY!r}); it is probably a base model: give the prompt as it "
                "is (--raw)"
            )
        bos, eos = tokenizer.bos_id, tokenizer.eos_id
        return cls(
            source,
            bos_token="" if bos is None else tokenizer.token_text(bos),
            eos_token="" if eos is None else tokenizer.token_text(eos),
            clock=clock,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        **variables: object,
    ) -> str:
        """The prompt text; encode it with add_special=False, parse_special=True.

        messages: each has a "role" and a "content" (a text or a list of text parts), and what else the template
        knows (tool calls, names). add_generation_prompt: end with the beginning of the model's answer.
        tools: JSON schemas of functions. variables: more values for the template, plain data.
        Raises InputError for malformed messages, TemplateError where the template fails or refuses them.
        """
        clash = self._tokens.keys() & variables.keys()
        if clash:
            raise InputError(f"the template variable {min(clash)!r} is set by the model's vocabulary")
        values: dict[str, object] = {
            "documents": None,
            **self._tokens,
            **{name: plain_data(value, f"variable {name!r}") for name, value in variables.items()},
            "messages": check_messages(messages),
            "add_generation_prompt": bool(add_generation_prompt),
            "tools": None if tools is None else plain_data(list(tools), "tools"),
        }
        try:
            with Budget():
                return self._template.render(values)
        except _FAULTS as error:
            raise _as_template_error(error) from error

    def _strftime_now(self, form: str) -> str:
        if self._clock is None:
            raise TemplateError(
                "the chat template puts today's date into the prompt, which would change the answer from day to day; "
                "pass a date (clock=)"
            )
        if len(form) > 100 or re.search(r"%[^a-zA-Z%]*\d", form):
            raise TemplateError(f"the chat template asks for the date in the form {form!r:.60}, which is not allowed")
        return self._clock().strftime(form)


def _raise_exception(message: object) -> None:
    raise TemplateError(f"the chat template refuses these messages: {message!s:.500}")


def _as_template_error(error: BaseException) -> TemplateError:
    line = f"line {error.lineno}: " if isinstance(error, jinja2.TemplateSyntaxError) else ""
    text = " ".join(str(error).split()) or type(error).__name__
    return TemplateError(f"the chat template failed: {line}{text:.300}; use --raw to give the prompt as it is")
