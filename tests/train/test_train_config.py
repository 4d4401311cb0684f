"""Settings of a training: their layers, their errors, and the YAML that they are written to."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from train_values import a_config

from refinesynth.cli.train import typed_settings as given_by_hand
from refinesynth.errors import InputError
from refinesynth.train.config import LoraConfig, TrainConfig, interval
from refinesynth.train.layered_settings import DEFAULT, RECIPES, explained_yaml, layered, published, to_yaml

NAMES = {"data": ["runs/first"], "model": "m/base", "output": "models/first"}


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(file: Path | None = None, *, recipe: str | None = None, **fields: Any) -> str:
    with pytest.raises(InputError) as caught:
        layered(file=file, recipe=recipe, given={**NAMES, **fields})
    return str(caught.value)


# The paper's numbers, section 4.1: a change of a default changes what a recipe promises.


@pytest.mark.parametrize("recipe", [None, "paper-8b", "paper-70b"])
def test_the_papers_recipes_and_the_defaults_are_the_papers(recipe: str | None) -> None:
    config = layered(recipe=recipe, given=NAMES).config
    assert (config.learning_rate, config.schedule, config.warmup, config.batch_size, config.epochs) == (
        5e-6,
        "cosine",
        0.0,
        64,
        10.0,
    )
    assert config.max_length == (4096 if recipe == "paper-70b" else 8192)
    assert config.loss_on == "refinement"
    assert config.lora is None
    assert (config.parallel == "zero3") == (recipe == "paper-70b")
    # What the paper prints no number for is ours as a default, and the paper's way in its recipes.
    found = (config.held_out, config.keep, config.chat_template)
    assert found == ((0.02, 2, None) if recipe is None else (0, "all", "llama-3"))


def test_the_recipe_that_only_shows_that_it_runs_needs_no_model() -> None:
    layers = layered(recipe="smoke", given={"data": ["runs/first"], "output": "out"})
    assert (layers.config.model, layers.origin("model")) == ("scratch", "recipe smoke")
    assert layered(recipe="smoke", given=NAMES).config.model == "m/base"


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_valid_and_every_setting_in_it_says_so(recipe: str) -> None:
    layers = layered(recipe=recipe, given=NAMES)
    from_recipe = [name for name, origin in layers.origins.items() if origin == f"recipe {recipe}"]
    assert from_recipe
    assert layers.config.recipe == recipe
    assert layers.origin("recipe") == "command line"


def test_later_layers_win_and_say_where_they_come_from(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.yaml", "recipe: lora\nlearning_rate: 1.0e-3\nepochs: 2\nlora:\n  rank: 8\n")
    layers = layered(file=file, given={**NAMES, "epochs": 1, "lora.dropout": 0.1})
    config = layers.config
    assert (config.warmup, config.learning_rate, config.epochs) == (0.03, 1e-3, 1.0)
    assert config.lora == LoraConfig(rank=8, alpha=64, dropout=0.1)
    origins = [layers.origin(name) for name in ("warmup", "learning_rate", "epochs", "weight_decay")]
    assert origins == ["recipe lora", str(file), "command line", DEFAULT]
    assert [layers.origin(f"lora.{name}") for name in ("alpha", "rank", "dropout")] == [
        DEFAULT,
        str(file),
        "command line",
    ]
    assert layers.origin("lora") == "recipe lora"


def test_a_recipe_that_is_given_replaces_the_one_in_the_file(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.yaml", "recipe: lora\n")
    config = layered(file=file, recipe="smoke", given=NAMES).config
    assert (config.recipe, config.lora, config.max_steps) == ("smoke", None, 20)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"lora": True}, LoraConfig()),
        ({"lora": False}, None),
        ({"lora": None}, None),
        ({"lora.rank": "4"}, LoraConfig(rank=4)),
        ({"lora": True, "lora.rank": 4}, LoraConfig(rank=4)),
    ],
)
def test_adapters_are_on_off_or_set(layers: Mapping[str, Any], expected: LoraConfig | None) -> None:
    assert a_config(**layers).lora == expected


KWARGS = "chat_template_kwargs"


def test_a_mapping_is_put_together_from_all_layers_and_shown_with_where_each_comes_from(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.yaml", f"{KWARGS}: {{a: 1, b: [2], c: no}}\n")
    layers = layered(file=file, given={**NAMES, f"{KWARGS}.b": 3})
    assert layers.config.chat_template_kwargs == {"a": 1, "b": 3, "c": False}
    assert (layers.origin(f"{KWARGS}.a"), layers.origin(f"{KWARGS}.b")) == (str(file), "command line")
    assert "\n  b: 3                                    # command line\n" in (shown := explained_yaml(layers))
    assert layered(file=written(tmp_path / "a.yaml", shown)).config == layers.config
    none = layered(file=file, given={**NAMES, KWARGS: False})
    assert (none.config.chat_template_kwargs, none.origin(f"{KWARGS}.a")) == ({}, DEFAULT)
    assert "write its settings" in refusal(None, chat_template_kwargs="text")


def test_a_mapping_is_given_by_hand_with_its_types() -> None:
    texts = ["a=true", "b=False", "c=1e-3", "d=8", "e=null", "f=[1]", "g=adamw_8bit", 'h="7"', "i=", "j=True story"]
    found = given_by_hand({}, assignments=[f"{KWARGS}.{text}" for text in texts])
    expected = [True, False, 0.001, 8, None, [1], "adamw_8bit", "7", "", "True story"]
    assert found == {f"{KWARGS}.{name}": value for name, value in zip("abcdefghij", expected, strict=True)}
    assert given_by_hand({}, assignments=[f'{KWARGS}={{"a": 1}}', "seed=8"]) == {KWARGS: {"a": 1}, "seed": "8"}


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"learning_rat": 1}, ["no setting 'learning_rat' (command line)", "did you mean learning_rate?"]),
    ({"lora.rnk": 1}, ["no setting 'lora.rnk'", "lora.rank"]),
    ({"rank": 1}, ["no setting 'rank'", "lora.rank"]),
    ({"held_out": 1.5}, ["held_out is 1.5", "a share (below 1) or a whole number (from 1 on)"]),
    ({"lora": 7}, ["lora is 7", "true, false or its settings"]),
    ({"epochs": "many"}, ["epochs is 'many' (command line): Input should be a valid number"]),
    ({"batch_size": 0}, ["batch_size is 0", "greater than or equal to 1"]),
    ({"precision": "fp16"}, ["precision is 'fp16'", "'bf16'"]),
    ({"evaluate_every": "sometimes"}, ["evaluate_every is 'sometimes'", "'epoch' or 'never', or: "]),
    ({"gradient_checkpointing": "perhaps"}, ["gradient_checkpointing is 'perhaps'"]),
    ({"adam_betas": 0.9}, ["adam_betas is 0.9", "valid tuple"]),
    ({"lora.dropout": 1}, ["lora.dropout is 1"]),
    ({"data": []}, ["data names nothing"]),
    ({"data": [""]}, ["data is ''"]),
    ({"output": ""}, ["output is ''", "at least 1 character"]),
    ({"max_length": 4096, "tokens_per_pack": 2048}, ["tokens_per_pack is 2048", "max_length 4096"]),
    ({"keep": 0}, ["keep is 0"]),
    ({"model": "scratch", "lora": True}, ["model is 'scratch'", "--no-lora"]),
    ({"epochs": "x", "seed": "y"}, ["epochs is 'x'", "seed is 'y'"]),
    ({"trainer.optm": "adamw_8bit"}, ["did you mean trainer.optim"]),
    ({"trainer.epochs": 3}, ["did you mean epochs?"]),
    ({"optim": "adamw_8bit"}, ["no setting 'optim' (command line); did you mean trainer.optim?"]),
    ({"trainer": {"": 1}}, ["no setting 'trainer.'"]),
    ({"trainer": {"optim": "adamw"}}, ["trainer.optim is 'adamw' (command line): Input should be 'adamw_8bit'"]),
    ({"trainer": {"label_smoothing_factor": 0.1}}, ["no setting 'trainer.labe"]),
    ({"schedule": "greedy"}, ["schedule is 'greedy' (command line): Input should be 'cosine', 'linear'"]),
]


def test_wrong_settings_say_what_is_right() -> None:
    said = {repr(fields): (refusal(**fields), messages) for fields, messages in WRONG}
    missing = {fields: text for fields, (text, messages) in said.items() if any(one not in text for one in messages)}
    assert missing == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is no YAML"),
        ("!!python/object/apply:os.system [id]", "is no YAML"),
        ("- a\n- b\n", "holds no settings"),
        ("recipe: [1]\n", "no recipe [1]"),
        ("seed: 1\nepochs: 1\nseed: 2\n", "gives 'seed' twice, in lines 1 and 3"),
        ("lora:\n  rank: 1\n  rank: 2\n", "gives 'rank' twice, in lines 2 and 3"),
        ("lora: &a\n  targets: [*a]\n", "lora.targets"),
        ("[" * 5000, "is no YAML"),
        ("x: " + "y" * 1_000_001, "larger than a configuration"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        layered(file=written(tmp_path / "mine.yaml", text))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_json_is_read_as_well(tmp_path: Path) -> None:
    config = a_config(learning_rate=5e-6, lora=True)
    file = written(tmp_path / "mine.json", config.model_dump_json(indent=1))
    assert layered(file=file).config == config


def values_of_any_size() -> st.SearchStrategy[dict[str, Any]]:
    text = st.text(min_size=1, max_size=20)
    return st.fixed_dictionaries(
        {
            "data": st.lists(text.filter(lambda path: not path.startswith("~")), min_size=1, max_size=3),
            "model": text.filter(lambda path: not path.startswith("~")),
        },
        optional={
            "learning_rate": st.floats(1e-12, 1.0),
            "seed": st.integers(0, 2**32 - 1),
            "lora": st.booleans() | st.fixed_dictionaries({"rank": st.integers(1, 512), "targets": text}),
            "evaluate_every": st.sampled_from(["epoch", "never"]) | st.floats(0.01, 0.99) | st.integers(1, 1000),
            "attention": text,
            "packing": st.booleans(),
        },
    )


@given(fields=values_of_any_size())
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> None:
    layers = layered(given={**NAMES, **fields})
    folder = tmp_path_factory.mktemp("config")
    for text in (to_yaml(layers.config), explained_yaml(layers)):
        file = folder / "train.yaml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        assert layered(file=file).config == layers.config


def test_what_is_written_names_nobodys_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ada.l"))
    config = a_config(data=[str(tmp_path / "home/ada.l/run"), "/data/other", "~/third"], model="~/model")
    assert config.model == str(tmp_path / "home/ada.l/model")
    text = to_yaml(config)
    assert "ada.l" not in text
    assert layered(file=written(tmp_path / "train.yaml", text)).config == config


def test_the_explanation_documents_every_setting_and_says_where_it_comes_from() -> None:
    text = explained_yaml(layered(recipe="lora", given=NAMES))
    assert yaml.safe_load(text)["lora"]["rank"] == 32
    for name, field in {**TrainConfig.model_fields, **LoraConfig.model_fields}.items():
        assert field.description, name
        assert f"# {field.description.splitlines()[0]}" in text
    assert "learning_rate: 0.0002                     # recipe lora" in text
    assert "weight_decay: 0.0                         # default" in text


@pytest.mark.parametrize(
    ("every", "expected"), [("epoch", 10), ("never", None), (0.5, 5), (0.001, 1), (1, 1), (1.0, 1), (7, 7), (25, 25)]
)
def test_how_often_is_a_share_of_an_epoch_or_steps(every: Any, expected: int | None) -> None:
    assert interval(a_config(save_every=every).save_every, 10) == expected


@pytest.mark.process
def test_no_torch_is_imported_for_settings_and_plans() -> None:
    code = (
        "import sys, refinesynth.train as t; from refinesynth.train import plan, layered_settings, training_folder, trainer; "
        "[getattr(t, name) for name in t.__all__]; t.layered(recipe='lora', given=dict(data=['a'], model='m', output='o', trainer=dict(optim='adamw_8bit'))); "
        "print([m for m in ('torch', 'transformers', 'datasets') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_a_model_is_named_so_that_others_may_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "somebody"
    for folder in (home / "work" / "models" / "base", tmp_path / "srv"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for at, named in ((home / "work", "../base"), (tmp_path / "srv", "~/base")):
        monkeypatch.chdir(at)
        assert published(str(home / "base")) == named
        for as_given in ("an-org/a-model", "models/base", "../base", str(tmp_path / "elsewhere")):
            assert published(as_given) == as_given
    monkeypatch.chdir(home / "work")
    assert published(str(home / "work" / "models" / "base")) == "models/base"
