"""Errors of chat templates that cannot be trained through."""

from refinesynth.errors import InputError


class TemplateError(InputError):
    """No right labels can be made with this chat template and tokenizer; training would learn something else than it
    should.
    """


class RewritesHistoryError(TemplateError):
    """The template writes an earlier turn otherwise once later turns follow, so one text cannot serve all turns of a
    conversation.
    """
