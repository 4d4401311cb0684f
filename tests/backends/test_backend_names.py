"""From names to backends."""

from importlib.machinery import ModuleSpec
from typing import Any, cast

import pytest

from refinesynth.backends import PRESETS, Backend, BackendSpec, Role, providers, resolve, resolve_roles
from refinesynth.backends.names import rehearsal_faults
from refinesynth.errors import ConfigurationError
from refinesynth.rehearsal import Faults
from refinesynth.rehearsal.families import FAMILIES


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_its_backend_whatever_the_case(name: str) -> None:
    assert resolve(name) == resolve(f" {name.upper()} ") == PRESETS[name].backend


@pytest.mark.parametrize("model", ["gpt-4o-2024-05-13", "hosted_vllm/qwen3-8b", "openrouter/a/b", "ollama_chat/x:8b"])
def test_any_litellm_model_string_is_a_backend(model: str) -> None:
    assert resolve(model) == Backend(model=model)


def test_the_rehearsal_takes_rates_of_its_faults() -> None:
    backend = resolve("rehearsal:invalid_json=0.1, natural_mistake=0.3")
    assert (backend.name, backend.is_rehearsal) == ("rehearsal", True)
    assert rehearsal_faults(backend.model) == Faults(invalid_json=0.1, natural_mistake=0.3)
    assert resolve("rehearsal:") == PRESETS["rehearsal"].backend


def test_the_rehearsal_takes_families_of_worlds() -> None:
    assert rehearsal_faults(resolve("rehearsal:families=panel+search,skill=0.5").model) == Faults(
        families=("panel", "search"), skill=0.5
    )
    assert rehearsal_faults("rehearsal:families=all").families == tuple(FAMILIES)
    with pytest.raises(ConfigurationError, match="there is no family 'pannel'; there are household, files"):
        resolve("rehearsal:families=panel+pannel")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpt4o", "gpt-4o"),
        ("deepsek", "deepseek"),
        ("hosted-vllm/qwen", "hosted_vllm/qwen"),
        ("rehersal", r"^'rehersal' is not .*; did you mean rehearsal\?"),
        ("rehearsal:invalid_jsn=0.1", "invalid_json"),
        ("rehearsal:invalid_json=much", "invalid_json=0.1"),
        ("rehearsal:invalid_json=2", "0 to 1"),
        ("rehearsal:invalid_json=0.1,invalid_json=0.9", "given twice"),
        ("xyzzy", "refinesynth backends"),
        ("openai/", "no model"),
        ("two words", "litellm model string"),
        ("", "litellm model string"),
    ],
)
def test_what_is_no_backend_says_what_comes_near(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        resolve(name)


@pytest.mark.parametrize("spec", [None, ModuleSpec("litellm", None, origin="/no/such/folder/__init__.py")])
def test_names_are_not_checked_where_litellms_files_are_gone(
    spec: ModuleSpec | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(_name: str) -> ModuleSpec | None:
        return spec

    monkeypatch.setattr(providers, "find_spec", found)
    providers.known_models.cache_clear()
    providers.known_providers.cache_clear()
    try:
        assert resolve("some-model") == Backend(model="some-model")
        assert resolve("openai/some-model") == Backend(model="openai/some-model")
    finally:
        providers.known_models.cache_clear()
        providers.known_providers.cache_clear()


def test_a_role_of_its_own_and_the_default_for_the_rest() -> None:
    chosen = resolve_roles({"default": "gpt-4o", "player": "hosted_vllm/qwen3-8b"})
    assert chosen.pop(Role.PLAYER) == Backend(model="hosted_vllm/qwen3-8b")
    assert all(backend == PRESETS["gpt-4o"].backend for backend in chosen.values())


def test_the_narrator_speaks_for_the_dungeon_master() -> None:
    chosen = resolve_roles({"default": "gpt-4o", "dungeon_master": "deepseek"})
    assert chosen[Role.NARRATOR] == chosen[Role.DUNGEON_MASTER] == PRESETS["deepseek"].backend
    assert chosen[Role.JUDGE] == PRESETS["gpt-4o"].backend


def test_three_roles_are_enough_without_default() -> None:
    chosen = resolve_roles({Role.SCRIPT_WRITER: "gpt-4o", Role.DUNGEON_MASTER: "deepseek", Role.PLAYER: "ollama"})
    assert chosen[Role.JUDGE] == PRESETS["deepseek"].backend


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ({"player": "gpt-4o"}, "script_writer"),
        ({}, "script_writer"),
        ({"default": "gpt-4o", "dungeonmaster": "gpt-4o"}, "dungeon_master"),
        ({"default": "gpt-4o", "wizard": "gpt-4o"}, "player"),
        ({"default": "gpt-4o", "player": "gpt4o"}, "gpt-4o"),
        (5, "mapping"),
    ],
)
def test_a_mapping_that_does_not_work_says_why(spec: Any, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        resolve_roles(cast("BackendSpec", spec))
