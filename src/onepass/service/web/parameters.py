"""Parameters: what a request says beside its rows, as far as it is heeded here."""

from collections.abc import Mapping
from typing import Any

from onepass.errors import ParameterError

__all__ = ["asks"]


def asks(parameters: Mapping[str, Any] | None, *, may: bool) -> bool:
    """Whether ids are asked for, by which answers come later.

    Parameters
    ----------
    parameters : mapping of str to Any, or None
        As they came; those of other names are other servers'.
    may : bool
        Whether that can be asked for here.

    Raises
    ------
    ParameterError
        If it can not, or is neither true nor false; or if ``seconds`` stands there without it. To
        pass them over would be to lose rows that somebody means to answer.
    """
    if not parameters:
        return False
    wanted = parameters.get("ask", False)
    if not isinstance(wanted, bool):
        raise ParameterError(
            f"the parameter 'ask' must be true or false, got {wanted!r:.40}. Give one of them."
        )
    if wanted and not may:
        raise ParameterError(
            "the parameter 'ask' must come with infer, got true elsewhere. Send the rows to "
            "/v2/models/NAME/infer, and their answers, by the ids that it gives, to answers."
        )
    if "seconds" in parameters and not wanted:
        raise ParameterError(
            "the parameter 'seconds' must come with 'ask', got it alone. Send \"ask\": true to "
            "infer too, or leave it out."
        )
    return wanted
