"""Merge: models that learned parts of a stream become one that knows all of it."""

from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from onepass.cli.arguments import Quiet
from onepass.cli.places import spare
from onepass.cli.terminal import remark
from onepass.cli.usage import usage

__all__ = ["merge"]

_FORGETTING = (  # the remedy as Python has it, and as it is set here
    "Use plain forgetting, such as forgetting=op.forgetting.Exponential(0.99), or a Window.",
    (
        "Learn the parts with plain forgetting, --set rls.forgetting=exponential:0.999, or with a "
        "window, such as --set rls.forgetting=window:1000."
    ),
)


def merge(
    *models: Annotated[Path, Parameter(allow_leading_hyphen=False)],
    save: Path,
    concurrent: bool = False,
    quiet: Quiet = False,
) -> None:
    """Make one model of several, as if the first had also seen the rows of the others, in order.

    Recursive least squares (rls) and ORFit with noise and without a limit to its memory merge
    exactly, in any order of merging; what can only be merged approximately, or not at all, is
    told. All models must have been made with the same settings.

    Parameters
    ----------
    models
        Files that "onepass run --save" wrote, two or more, in the order of their rows.
    save
        Where to save what all of them learned. No model is written over.
    concurrent
        With forgetting: the parts ran side by side, so that none of them ages by another.
    quiet
        Say nothing of what was written.
    """
    from onepass.errors import MergeError, OnepassError
    from onepass.serialization.models import load
    from onepass.serialization.models import save as saved

    if len(models) < 2:
        raise CycloptsError(msg="merge: two or more models are needed: merge a.onepass b.onepass.")
    with usage("merge"):
        spare(models, [save], "merge: --save")
    save.parent.mkdir(parents=True, exist_ok=True)
    first, *others = models
    whole = load(first)
    for model in others:
        part = load(model)
        if not hasattr(whole, "merge"):
            raise MergeError(
                f"merge: {first} must hold a model, got a {type(whole).__name__}. "
                "Give files that onepass run --save wrote."
            )
        try:
            whole.merge(part, concurrent=concurrent)
        except OnepassError as wrong:
            said = str(wrong).replace(*_FORGETTING)
            raise MergeError(f"merge: {model} with {first}: {said}") from wrong
    saved(whole, save)
    kind = "" if whole.merging == "exact" else f", {whole.merging}"
    rows = getattr(whole, "rows_seen_", 0)
    remark(f"{rows:,} rows of {len(models)} models{kind}: {save}", quiet=quiet)
