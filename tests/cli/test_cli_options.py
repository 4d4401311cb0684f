"""Values as they are typed after an option."""

import pytest
from pydantic import ValidationError

from refinesynth.cli.backend_options import backend_spec
from refinesynth.errors import ConfigurationError
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import Mistakes, at_least, natural, prompted, spread


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ([], None),
        (["gpt-4o"], "gpt-4o"),
        (["default=gpt-4o"], "gpt-4o"),
        (["rehearsal:invalid_json=0.1,natural_mistake=0.3"], "rehearsal:invalid_json=0.1,natural_mistake=0.3"),
        (["hosted_vllm/a=b"], "hosted_vllm/a=b"),
        (["gpt-4o", "player=ollama/qwen3"], {"default": "gpt-4o", "player": "ollama/qwen3"}),
        (["Dungeon-Master=x", "player=y=z"], {"dungeon_master": "x", "player": "y=z"}),
        (["a", "player=b", "player=c"], {"default": "a", "player": ["b", "c"]}),
    ],
)
def test_backends(given: list[str], spec: object) -> None:
    assert backend_spec(given) == spec


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["plaier=gpt-4o"], "Did you mean player=gpt-4o?"),
        (["x=gpt-4o"], "there is no role 'x'"),
        (["gpt-4o", "deepseek"], "default is given twice, 'gpt-4o' and 'deepseek'"),
        (["player= "], "names no backend"),
        ([""], "names no backend"),
    ],
)
def test_wrong_backends(given: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        backend_spec(given)
    assert message in str(caught.value)


MISTAKES = {
    "natural": natural(),
    "spread": Mistakes(),
    "spread=3": spread(3),
    "prompted": prompted(),
    "prompted=2,5": prompted(2, 5),
    "at_least": at_least(),
    "At-Least=4": at_least(4),
    "at_least=0": at_least(0),
}
NO_MISTAKES = "|none|natural=1|at_least=two|at_least=-1|at_least=1,2|prompted=1,,2|spread=0|spread=5|spread=1,2"


def test_mistakes_as_text() -> None:
    assert {text: Mistakes.model_validate(text) for text in MISTAKES} == MISTAKES
    for text in NO_MISTAKES.split("|"):
        with pytest.raises(ValidationError, match="expected one of: spread"):
            Mistakes.model_validate(text)


ATTEMPTS = {
    "2": Attempts(drafts=2),
    "drafts=2, scripts=5": Attempts(drafts=2, scripts=5),
    "calls=4,answers=0": Attempts(calls=4, answers=0),
    "2,scripts=5": Attempts(drafts=2, scripts=5),
}


def test_attempts_as_text() -> None:
    assert {text: Attempts.model_validate(text) for text in ATTEMPTS} == ATTEMPTS
    for text in ("", "drafts", "tries=3", "drafts=many", "drafts=1.5", "4,5", "scripts=3,4", "calls=1,calls=2"):
        with pytest.raises(ValidationError, match="such as scripts=3"):
            Attempts.model_validate(text)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Attempts.model_validate("drafts=0")
