"""Settings of backends on the command line."""

import pytest

from refinesynth.backends import Backend, OutputMode, Role, resolve, resolve_roles
from refinesynth.cli.backend_options import split_fallback, tuned, tuned_fallback
from refinesynth.client.default_limits import bound_of
from refinesynth.errors import ConfigurationError


def test_a_setting_is_for_all_or_for_one_role() -> None:
    settings = [
        "player.temperature=1",
        "temperature = 0.5",
        "Player.base_url=http://127.0.0.1:8000/v1",
        "output_mode=tool",
    ]
    found = tuned({"default": "gpt-4o", "player": "hosted_vllm/a"}, settings)
    assert found == {
        "default": resolve("gpt-4o").model_copy(update={"temperature": 0.5, "output_mode": OutputMode.TOOL}),
        "player": resolve("hosted_vllm/a").model_copy(
            update={"temperature": 1.0, "base_url": "http://127.0.0.1:8000/v1", "output_mode": OutputMode.TOOL}
        ),
    }


def test_a_role_without_a_backend_begins_as_what_it_would_have_been() -> None:
    found = tuned(
        {"default": "gpt-4o", "dungeon_master": "deepseek"}, ["narrator.retries=3", "dungeon-master.timeout=9"]
    )
    assert isinstance(found, dict)
    deepseek = resolve("deepseek")
    assert found["narrator"] == deepseek.model_copy(update={"retries": 3})
    assert found["dungeon_master"] == deepseek.model_copy(update={"timeout": 9.0})


def test_null_takes_out_the_default_bound_of_an_answer() -> None:
    found = tuned("gpt-4o", ["max_tokens=null", "judge.max_tokens=9", 'extra={"user": "me"}'])
    assert isinstance(found, dict)
    backends = resolve_roles(found)
    assert backends[Role.PLAYER].extra == {"user": "me", "max_tokens": None}
    assert bound_of(Role.PLAYER, backends[Role.PLAYER]) is None
    assert (backends[Role.JUDGE].extra, backends[Role.JUDGE].max_tokens) == ({"user": "me"}, 9)
    assert bound_of(Role.PLAYER, resolve("gpt-4o")) == 512


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("temperature", "write [ROLE.]SETTING=VALUE"),
        ("api_key=sk-canary", "did you mean api_key_env?"),
        ("api_key_env=sk-canary", "is the name of an environment variable"),
        ("model=sk-canary", "a backend has no setting 'model'"),
        ("temperature=sk-canary", "--set temperature: Input should be"),
        ('extra={"key": sk-canary}', "--set extra: expected a JSON object, such as"),
        ('extra={"key": sk-canary}', "and got a text that is no JSON"),
        ('extra={"api_key": "sk-canary"}', "--set extra: 'api_key' looks like a secret"),
        ("plaier.temperature=1", "there is no role 'plaier'"),
    ],
)
def test_wrong_settings_say_what_is_right_and_never_repeat_a_value(setting: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        tuned("gpt-4o", [setting])
    assert message in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_setting_is_given_once_for_each_role() -> None:
    assert isinstance(tuned("gpt-4o", ["temperature=0", "player.temperature=1"]), dict)
    for name in ("temperature", "player.Temperature"):
        with pytest.raises(ConfigurationError, match=r"^--set (player\.)?temperature is given twice; give it once$"):
            tuned("gpt-4o", [f"{name}=0", "top_p=1", f"{name.lower()}=1"])


def test_settings_of_the_fallback_are_its_own() -> None:
    of_fallback, others = split_fallback(
        ["temperature=1", "fallback.base_url=http://127.0.0.1:1/v1", "player.top_p=0.5"]
    )
    assert others == ["temperature=1", "player.top_p=0.5"]
    second = tuned_fallback("hosted_vllm/m", of_fallback)
    assert isinstance(second, Backend)
    assert (second.model, second.base_url, second.temperature) == ("hosted_vllm/m", "http://127.0.0.1:1/v1", None)
    assert tuned_fallback("gpt-4o", []) == "gpt-4o"
    assert tuned_fallback(None, []) is None
    with pytest.raises(ConfigurationError, match="without --fallback"):
        tuned_fallback(None, ["temperature=1"])


def test_a_setting_of_a_role_is_for_all_models_that_take_turns_in_it() -> None:
    found = tuned({"default": "gpt-4o", "player": ["gpt-4o", "deepseek"]}, ["player.temperature=1", "retries=3"])
    assert isinstance(found, dict)
    player = found["player"]
    assert isinstance(player, Backend)
    expected = [resolve(name).model_copy(update={"temperature": 1.0, "retries": 3}) for name in ("gpt-4o", "deepseek")]
    assert list(player.members) == expected
    assert found["default"] == resolve("gpt-4o").model_copy(update={"retries": 3})


def test_the_planner_is_a_backend_of_the_repairer_alone() -> None:
    found = tuned({"default": "rehearsal", "repairer": "planner"}, ["temperature=0.5"])
    assert Role.REPAIRER not in resolve_roles(found)
    assert resolve_roles({"default": "gpt-4o", "player": "rehearsal"})[Role.REPAIRER] == resolve("gpt-4o")
    for role in ("player", "default"):
        with pytest.raises(ConfigurationError, match="'planner'"):
            resolve_roles({"default": "rehearsal", role: "planner"})
