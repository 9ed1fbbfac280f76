"""Sorts: which parameters GPM holds as the weights of layers, which it freezes, which are free."""

from typing import Any, NamedTuple

from onepass.errors import ParameterError, listed
from onepass.nn.optim.activations import Layer, layers

__all__ = ["Sorts", "sorted_out"]


class Sorts(NamedTuple):
    """What becomes of parameters."""

    layers: dict[str, Layer]
    """Those whose weights' steps are projected, by name."""
    fixed: list[Any]
    """Parameters that learn in the first task alone."""


def sorted_out(
    module: Any, chosen: dict[str, Any], *, biases: str, others: str, where: str
) -> Sorts:
    """What becomes of the chosen parameters of a module.

    Parameters
    ----------
    module : torch.nn.Module
    chosen : dict of str to Parameter
    biases : {"frozen", "free"}
    others : {"refuse", "frozen", "free"}
    where : str
        What the user called, for messages.

    Raises
    ------
    ParameterError
        If an option is none of these, no weight of a layer is chosen, or others are unasked.
    """
    _refuse_words(biases, others, where)
    found, ours = layers(module), {id(each) for each in chosen.values()}
    tied = _elsewhere(module, found)
    held = {n: e for n, e in found.items() if id(e.weight) in ours and id(e.weight) not in tied}
    known = {id(each.weight) for each in held.values()}
    shifts = {id(bias) for each in found.values() for bias in each.biases} - known
    strange = {n: p for n, p in chosen.items() if id(p) not in known | shifts}
    if not held or (strange and others == "refuse"):
        raise _strangers(strange, where)
    fixed = [p for p in chosen.values() if id(p) in shifts] if biases == "frozen" else []
    return Sorts(held, fixed + (list(strange.values()) if others == "frozen" else []))


def _refuse_words(biases: Any, others: Any, where: str) -> None:
    """Refuse options that there are not.

    Raises
    ------
    ParameterError
    """
    known = {"biases": ("frozen", "free"), "others": ("refuse", "frozen", "free")}
    for name, given in (("biases", biases), ("others", others)):
        if given not in known[name]:
            raise ParameterError(
                f"{where}: `{name}` must be one of {', '.join(known[name])}, got {given!r}. "
                "'frozen' keeps past answers."
            )


def _elsewhere(module: Any, known: dict[str, Any]) -> set[int]:
    """Weights of layers that are also used by something that is no such layer, by identity."""
    own = {id(part): layer.weight for layer in known.values() for part in layer.modules}
    weights = {id(layer.weight) for layer in known.values()}
    return {
        id(each)
        for part in module.modules()
        for each in part.parameters(recurse=False)
        if id(each) in weights and own.get(id(part)) is not each
    }


def _strangers(strange: dict[str, Any], where: str) -> ParameterError:
    came = listed(list(strange)) if strange else "biases alone"
    return ParameterError(
        f"{where}: `module` must have linear layers or convolutions that the optimizer moves, and "
        f"nothing else unasked, got {came}. Name the layers to hold with `projects`, or say what "
        "becomes of the others: others='frozen' after the first task, or others='free'."
    )
