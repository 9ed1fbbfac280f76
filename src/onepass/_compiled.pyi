from typing import Any, Self

class Rows:
    def __new__(
        cls,
        d: int,
        c: int,
        free: bool,
        factor: float,
        level: float,
        period: int,
        array: Any,
        names: Any,
        number: Any,
        labels: Any,
        places: Any,
        /,
    ) -> Self: ...
    def put(self, part: str, doubles: Any, /) -> None: ...
    def get(self, part: str, /) -> bytes: ...
    def triangle(self, R: Any, z: Any, out: bool, /) -> None: ...
    def numbers(
        self, mass: float = ..., age: float = ..., count: int = ..., /
    ) -> tuple[float, float, float, int, int]: ...
    def learn(self, n: int, X: Any, Y: Any, weights: Any, errors: Any, /) -> bool: ...
    def learn_one(self, x: Any, y: Any, weight: float, /) -> bool: ...
    def learn_few(self, n: int, X: Any, y: Any, errors: Any, /) -> bool: ...
    def predict_one(self, x: Any, /) -> Any: ...
    def predict_few(self, n: int, X: Any, scores: Any, /) -> bool: ...
    def release(self) -> None: ...

def descend(
    n: int,
    d: int,
    c: int,
    unit: float,
    loss: int,
    parameter: float,
    X: Any,
    Y: Any,
    rate: Any,
    limit: Any,
    keep: Any,
    W: Any,
    b: Any,
    said: Any,
    /,
) -> None: ...
def correct(
    n: int,
    d: int,
    c: int,
    unit: float,
    X: Any,
    y: Any,
    moves: Any,
    known: Any,
    W: Any,
    b: Any,
    said: Any,
    /,
) -> int: ...
