"""A served learner: whoever asks for its file has it in the end, however much there is to learn."""

import threading
from pathlib import Path
from typing import Any

import numpy as np

import onepass as op
from onepass.service.shelf import Shelf

X, Y = np.ones((1, 3)), np.ones(1)
MOST = 2000


def test_others_have_the_file_while_rows_come_without_end(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, "here")
    served = shelf.create("m", op.RLSRegressor())
    blocks, over = [0], threading.Event()

    def again(request: Any) -> None:
        assert request.error is None
        blocks[0] += 1
        if blocks[0] < MOST and not over.is_set():
            served.learn({"X": X, "y": Y}, again)
            served.wake()

    served.learn({"X": X, "y": Y}, again)
    served.wake()
    ids = served.ask(X, 60.0)[2]
    served.answer(ids, Y)
    served.durable.rollback(to=served.durable.snapshot())
    between = blocks[0]
    over.set()
    shelf.close()
    assert between < MOST
    with op.durable(tmp_path / "m.db") as durable:
        assert durable.rows_seen == blocks[0] + 1
