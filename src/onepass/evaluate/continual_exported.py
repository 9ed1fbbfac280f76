"""Continual exported: a report as frames and CSV of any library and program."""

import csv
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from onepass.errors import ParameterError
from onepass.evaluate.continual_pairs import pairs
from onepass.evaluate.continual_records import of_matrix, of_runs, of_scores
from onepass.evaluate.frames import frame
from onepass.serialization.atomic import writing

__all__ = ["Exported"]

_RECORDS: dict[str, Callable[[Any], Iterable[dict[str, Any]]]] = {
    "scores": of_scores,
    "runs": of_runs,
    "matrix": of_matrix,
    "pairs": pairs,
}


class Exported:
    """What a report gives to other programs."""

    def to_frame(
        self,
        library: Literal["pandas", "polars", "pyarrow"] | None = None,
        *,
        of: Literal["scores", "runs", "matrix", "pairs"] = "scores",
    ) -> Any:
        """A frame with a row for each model, each run, each number of R, or each pair of models.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Whose frame to make; the first of these that is installed by default.
        of : {"scores", "runs", "matrix", "pairs"}
            What to give.

        Raises
        ------
        MissingExtraError
            If the library, or any of the three, is not installed.
        ParameterError
            If there is no such thing to give.
        """
        rows = self._records(of, "to_frame")
        names = list(rows[0]) if rows else []
        columns = {name: [row[name] for row in rows] for name in names}
        return frame(columns, library, "ContinualReport.to_frame")

    def to_csv(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        of: Literal["scores", "runs", "matrix", "pairs"] = "runs",
    ) -> str:
        """The same as CSV; an empty cell where a number is not known.

        Parameters
        ----------
        path : path, optional
            Where to write it as well.
        of : {"scores", "runs", "matrix", "pairs"}
            What to give.
        """
        rows, text = self._records(of, "to_csv"), io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self._written(text.getvalue(), path, "to_csv")

    def _records(self, of: str, verb: str) -> list[dict[str, Any]]:
        if of not in _RECORDS:
            raise ParameterError(
                f"ContinualReport.{verb}: `of` must be one of {', '.join(map(repr, _RECORDS))}, "
                f"got {of!r}. Ask for one of these."
            )
        return list(_RECORDS[of](self))

    def _written(self, text: str, path: Any, verb: str) -> str:
        if path is not None:
            with writing(path, f"ContinualReport.{verb}"):
                Path(path).write_text(text, encoding="utf-8")
        return text
