"""Private attributes of libraries: each one that training uses is named here with its reason and its test."""

import ast
from pathlib import Path

TRAIN = Path(__file__).parents[2] / "refinesynth" / "train"
ALLOWED = {
    # No public name of a model's attention: test_engine_layout.
    "batch_layout.py": {"_attn_implementation", "_supports_flash_attn"},
    # No public way to have other settings in a second training of a process: test_engine_ranks; nor of the layers that
    # code that comes with a model names.
    "parallel.py": {"_reset_state", "_no_split_modules"},
    # No public name of the weights that are always loaded in fp32: test_engine_weights; nor of what `save_pretrained`
    # leaves out.
    "model_writer.py": {"_get_dtype_plan", "_keys_to_ignore_on_save"},
}
LIBRARIES = {"torch", "transformers", "accelerate", "peft", "deepspeed"}
OWN = {"_replace", "_micro_batches", "_asdict"}
"""Of named tuples, and of `Schedule` in its own class method."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OWN


def used(tree: ast.AST) -> set[str]:
    """Private attributes of other objects than `self` and `cls`, also by `getattr`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            found |= set() if own else {node.attr}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"getattr", "hasattr"}:
            named = node.args[1]
            if isinstance(named, ast.Constant) and private(str(named.value)):
                found.add(str(named.value))
    return found


def overridden(tree: ast.AST) -> set[str]:
    """Private methods of classes that inherit from a class of a library."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    theirs = {
        name.name for each in imports if (each.module or "").partition(".")[0] in LIBRARIES for name in each.names
    }
    return {
        f"{node.name}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and theirs.intersection(map(ast.unparse, node.bases))
        for each in node.body
        if isinstance(each, ast.FunctionDef) and private(each.name)
    }


def test_training_uses_no_private_attribute_of_a_library_but_those_named_here() -> None:
    trees = {path.name: ast.parse(path.read_text("utf-8")) for path in sorted(TRAIN.rglob("*.py"))}
    assert {name: found for name, tree in trees.items() if (found := used(tree))} == ALLOWED
    assert {each for tree in trees.values() for each in overridden(tree)} == set()
