"""A Flower strategy and client app: one round, in which each site sends its summary.

Import ``onepass.scale.flower`` where the extra ``onepass[flower]`` is installed. Flower transports
the messages and runs the sites; learning and merging are those of :mod:`onepass.scale.federated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from onepass.errors import MergeError, ProcessError, import_extra
from onepass.scale import federated

import_extra("flwr", extra="flower")

from flwr.app import (  # noqa: E402  after the error that names the extra
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp.strategy import Strategy  # noqa: E402
from flwr.serverapp.strategy.strategy_utils import sample_nodes  # noqa: E402


def client_app(learn: Callable[[Context], tuple[str, Any]]) -> ClientApp:
    """Make the client app of the sites.

    Parameters
    ----------
    learn : callable
        Called at each site with Flower's context; returns the name of the site, which orders the
        sites, and the model that has learned its rows, possibly by ``federated.private``.
    """
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        site, model = learn(context)
        sent = ConfigRecord({"site": site, "summary": federated.summary(model)})
        return Message(RecordDict({"summary": sent}), reply_to=message)

    return app


class ExactMerge(Strategy):  # type: ignore[misc]
    """One round that merges the summaries of all sites, in the order of their names.

    Parameters
    ----------
    sites : int
        Number of sites >= 1. The round begins when as many are connected.

    Attributes
    ----------
    model_ : learner or Pipeline
        Equal, to rounding, to a model that has learned the rows of all sites.

    Notes
    -----
    In a server app: ``model = ExactMerge(sites=10).fit(grid)``.
    """

    def __init__(self, sites: int) -> None:
        self.sites = sites

    def fit(self, grid: Grid, timeout: float = 3600.0) -> Any:
        """Run the round and return the merged model.

        Parameters
        ----------
        grid : Grid
            The connection to the sites, as passed to a server app.
        timeout : float, default=3600.0
            Seconds to wait for the summaries, once the sites are connected.

        Raises
        ------
        ProcessError
            If a site is missing or failed: a model without its rows would not be exact.
        MergeError
            If two sites have the same name, or the models are incompatible.
        """
        self.start(grid, ArrayRecord(), num_rounds=1, timeout=timeout)
        return self.model_

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Request a summary from each site, as soon as all are connected."""
        del server_round, arrays
        content = RecordDict({"config": config})
        return [
            Message(content, message_type="train", dst_node_id=node)
            for node in sample_nodes(grid, self.sites, self.sites)[0]  # waits for them
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Merge the summaries; ``model_`` is the result."""
        del server_round
        replies = list(replies)
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed or len(replies) < self.sites:
            raise ProcessError(
                f"each of {self.sites} sites must send a summary, got {len(replies)} replies, "
                f"{len(failed)} of them errors{': ' + failed[0] if failed else ''}. Correct the "
                "sites and run the round again.",
                "ExactMerge",
            )
        sent = sorted((reply.content["summary"] for reply in replies), key=lambda r: r["site"])
        names = [record["site"] for record in sent]
        if len(set(names)) < len(names):
            raise MergeError(f"the names of sites must be unique, got {names}.", "ExactMerge")
        self.model_ = federated.combine(record["summary"] for record in sent)
        return None, MetricRecord({"rows": int(self.model_.rows_seen_)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: there is no evaluation at the sites."""
        del server_round, arrays, config, grid
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Return nothing."""
        del server_round, replies

    def summary(self) -> None:
        """Log nothing in addition."""
