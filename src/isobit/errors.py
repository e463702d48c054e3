"""The one tree of errors that Isobit raises on purpose.

Every message says what was seen, what was expected and what to do. The command line turns an
`IsobitError` into one line on stderr and exit code 2 (a failed check exits with 1).
"""

from __future__ import annotations


class IsobitError(Exception):
    """Base of all errors raised on purpose by Isobit."""


class InputError(IsobitError, ValueError):
    """A value given by the caller cannot be used (prompt, setting, argument)."""


class FormatError(IsobitError, ValueError):
    """A file breaks the rules of its format.

    `field` names the part of the file at fault, `offset` is its byte offset (None where there is none).
    """

    def __init__(self, message: str, *, field: str, offset: int | None = None) -> None:
        self.field = field
        self.offset = offset
        place = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{field}{place}: {message}")


class UnsupportedError(IsobitError):
    """The file or request is valid, but asks for something Isobit does not do (yet)."""


class ModelNotFoundError(IsobitError, LookupError):
    """No model of that name or path; the message lists near matches."""


class DownloadError(IsobitError):
    """A download failed, ended early, or had the wrong sha256; nothing partial is kept as complete."""


class NumericsError(IsobitError, ArithmeticError):
    """A non-finite value appeared where the numerics require finite ones."""


class TemplateError(IsobitError):
    """A chat template is missing, invalid, or tried something that the sandbox forbids."""


class CheckFailedError(IsobitError):
    """A check such as `certify` found a difference (exit code 1)."""
