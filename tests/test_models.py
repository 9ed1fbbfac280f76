"""Models by name: all public learners, with all their parameters."""

import inspect
from typing import Any

import pytest

from onepass import learners, models
from onepass.errors import ParameterError


def test_public_learners_have_names() -> None:
    for listed in learners.__all__:
        name = listed.removesuffix("Regressor").removesuffix("Classifier")
        name = name.replace("KernelRLS", "KRLS").lower()
        task = "regression" if listed.endswith("Regressor") else "classification"
        assert models.learner_class(name, task) is getattr(learners, listed)


def test_new_public_learner_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    new = type("NewRegressor", (learners.SGDRegressor,), {})
    monkeypatch.setattr(learners, "NewRegressor", new, raising=False)
    monkeypatch.setattr(learners, "__all__", [*learners.__all__, "NewRegressor"])
    assert "new" in models.names("regression")
    assert type(models.pipelines(["new"], "regression")["new"].learner) is new


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_parameter_can_be_set(task: str) -> None:
    for name in models.names(task):
        for parameter in inspect.signature(models.learner_class(name, task)).parameters:
            try:
                made = models.pipelines([name], task, {f"{name}.{parameter}": 0.5})
            except ParameterError as error:  # the learner has received it
                assert parameter in str(error)  # noqa: PT017
            else:
                assert getattr(made[name].learner, parameter) == 0.5


def test_feature_settings_apply_to_all_models_without_sharing() -> None:
    made = models.pipelines(["rls", "sgd"], "regression", {"encode__max_categories": 7})
    first, second = made["rls"].steps, made["sgd"].steps
    assert [step.max_categories for step in (first[0], second[0])] == [7, 7]
    assert not {id(step) for step in first} & {id(step) for step in second}


@pytest.mark.parametrize(
    ("chosen", "task", "settings", "message"),
    [
        (["sdg"], "regression", {}, "Did you mean 'sgd'"),
        (["perceptron"], "regression", {}, "which is for classification"),
        ([], "regression", {}, "got none"),
        (["rls", "rls"], "regression", {}, "'rls' twice"),
        (["rls"], "ranking", {}, "must be 'regression' or 'classification'"),
        (["rls"], "regression", {"sgd__step": "pa"}, "a part in use, rls, encode, impute, scale"),
        (["rls"], "regression", {"rls": 1}, "Name the part|Did you mean"),
        (["rls"], "regression", {"scale.with_men": 1}, "Did you mean 'with_mean'"),
        (["sgd", "rls"], "regression", {"rls__forgetting": 2}, "`forgetting`"),
    ],
)
def test_unknown_names_are_refused(
    chosen: list[str], task: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        models.pipelines(chosen, task, settings)


def test_settings_with_a_dot_are_accepted_as_until_0_1() -> None:
    new, old = (
        models.pipelines(["rls"], "regression", {f"rls{mark}ridge": 3.0}) for mark in ("__", ".")
    )
    assert repr(new) == repr(old)
    assert new["rls"].learner.ridge == 3.0
