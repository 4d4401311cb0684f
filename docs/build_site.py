"""Builds the documentation site: `python docs/build_site.py` writes into `site/`, without network.

Pages are those of this folder. The pages of the reference are made from the package: commands from the command line
itself, settings from their fields, JSON Schemas from the types of the files, and the Python API from docstrings.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from typer.main import get_command

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs"
BUILD = ROOT / "build" / "docs"
SITE = ROOT / "site"

NAVIGATION: Mapping[str, Mapping[str, str]] = {
    "Tutorial": {
        "First run": "first-run.md",
        "First rule": "first-rule.md",
        "Student and teacher": "student-teacher.md",
        "From a run to an evaluated model": "run-to-model.md",
    },
    "How-to": {
        "Runs": "running.md",
        "Look at a run": "inspection.md",
        "Personas": "personas.md",
        "Servers and models": "backends.md",
        "Budget and batches": "budget.md",
        "Slurm, Kubernetes, Ray": "scaling.md",
        "Object stores": "stores.md",
        "Prompts": "prompts.md",
        "Export and publish": "export.md",
        "Import": "import.md",
        "Train": "training.md",
        "Evaluate": "evaluation.md",
        "RL environments": "environments.md",
        "Tool calls": "tools.md",
        "Own plays": "plays.md",
    },
    "Reference": {
        "Command line": "reference/cli.md",
        "Python API": "reference/api.md",
        "Settings": "reference/settings.md",
        "File formats": "reference/formats.md",
        "Rules": "rules.md",
        "Rulebook language": "grounded.md",
        "Puzzles": "puzzles.md",
        "Events": "events.md",
    },
    "Explanation": {
        "The paper": "paper.md",
        "Mistakes": "mistakes.md",
        "Diversity": "diversity.md",
        "Reliability": "reliability.md",
        "Architecture": "architecture.md",
    },
    "Experiments": {
        "Ablation": "ablation.md",
        "Pretrained model": "experiments/real-model.md",
        "Own mistakes and repairs": "experiments/student-teacher.md",
        "Benchmarks": "benchmarks.md",
        "Parity": "parity.md",
    },
}

API = {
    "refinesynth": "Synthesis: runs, results, settings",
    "refinesynth.trajectory": "Values: persona, script, turns, draft, trajectory",
    "refinesynth.rules": "Rules and chains",
    "refinesynth.backends": "Backends",
    "refinesynth.roles": "Roles",
    "refinesynth.chat": "Chat messages with loss flags",
    "refinesynth.export": "Export",
    "refinesynth.imports": "Import",
    "refinesynth.personas": "Personas",
    "refinesynth.report": "Report of a run",
    "refinesynth.train": "Training",
    "refinesynth.evaluate": "Evaluation",
    "refinesynth.environments": "Environments",
    "refinesynth.world": "Execution of rulebooks",
    "refinesynth.testing": "Strategies and test doubles",
}

SETTINGS = {
    "refinesynth.settings.run:RunSettings": "Run: `synthesize(...)`, `refinesynth run`, `--config FILE`",
    "refinesynth.settings.mistakes:Mistakes": "Mistakes: `--mistakes`",
    "refinesynth.settings.run:Attempts": "Attempts: `--attempts`",
    "refinesynth.settings.grounding:Grounding": "Grounded play",
    "refinesynth.settings.run:Curation": "Curation",
    "refinesynth.backends:Backend": "Backend: `--set NAME=VALUE`",
    "refinesynth.train.config:TrainConfig": "Training: `refinesynth train`",
    "refinesynth.evaluate.settings:Evaluation": "Evaluation: `refinesynth evaluate`",
}

FORMATS = {
    "refinesynth.trajectory:Trajectory": "One line of `trajectories.jsonl`",
    "refinesynth.outcome:Refused": "One line of `rejected.jsonl`",
    "refinesynth.run:RunConfig": "`config.json` of a run",
    "refinesynth.trajectory:Script": "A script, for `--scripts`",
    "refinesynth.report.audited_turns:Rating": "One line of `audit.jsonl`",
}


def found(name: str) -> Any:
    """Return the object behind `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def cell(text: object) -> str:
    """Return a text for one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def commands(command: Any, name: str) -> Iterator[str]:
    """Yield the sections of a command and of those below it."""
    yield f"## {name}\n\n{(command.help or '').strip()}\n"
    panels: dict[str, list[str]] = {}
    for each in command.params:
        if getattr(each, "hidden", False):
            continue
        names = ", ".join(f"`{option}`" for option in [*each.opts, *each.secondary_opts])
        row = f"| {names} | {cell(getattr(each, 'help', None) or '')} |"
        panels.setdefault(getattr(each, "rich_help_panel", None) or "Options and arguments", []).append(row)
    for panel, rows in panels.items():
        yield "\n".join([f"| {panel} | |", "|---|---|", *rows, ""])
    for below in getattr(command, "commands", ()):
        # The list of commands holds no options: a command is imported when it is resolved.
        yield from commands(command.resolve_command(None, [below])[1], f"{name} {below}")


def settings_table(model: type[BaseModel]) -> str:
    """Return a table of a model's fields with type, default and description."""
    rows = ["| field and type | default | description |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        annotation: Any = field.annotation
        kind = str(annotation) if hasattr(annotation, "__args__") else annotation.__name__
        kind = re.sub(r"\b(?:[a-z_]+\.)+", "", kind)
        default = "required" if field.is_required() else f"`{cell(repr(field.get_default(call_default_factory=True)))}`"
        rows.append(f"| `{name}`<br>{cell(kind)} | {default} | {cell(field.description or '')} |")
    return "\n".join([*rows, ""])


def reference() -> Iterator[tuple[str, str]]:
    """Yield the pages of the reference with their paths."""
    from refinesynth.cli import app

    yield "reference/cli.md", "\n".join(["# Command line\n", *commands(get_command(app), "refinesynth")])
    sections = [f"## {title}\n\n{settings_table(found(name))}" for name, title in SETTINGS.items()]
    yield "reference/settings.md", "\n".join(["# Settings\n", *sections])
    schemas = ["# File formats\n", "Every file is UTF-8. JSONL files hold one JSON object per line.\n"]
    for name, title in FORMATS.items():
        path = f"{name.partition(':')[2].lower()}.schema.json"
        yield f"reference/{path}", json.dumps(TypeAdapter(found(name)).json_schema(), indent=1)
        schemas.append(f"## {title}\n\n[JSON Schema]({path})\n")
    yield "reference/formats.md", "\n".join(schemas)
    rows = [f"- [{title}]({module}.md): `{module}`" for module, title in API.items()]
    yield "reference/api.md", "\n".join(["# Python API\n", *rows, ""])
    for module, title in API.items():
        names = [name for name in getattr(import_module(module), "__all__", []) if not name.startswith("_")]
        # A function with the name of its module is taken for the module, and named by its full path instead.
        homes = {name: getattr(getattr(import_module(module), name), "__module__", "") for name in names}
        apart = [f"\n::: {home}.{name}\n" for name, home in homes.items() if home.endswith(f".{name}")]
        members = "".join(f"        - {name}\n" for name, home in homes.items() if not home.endswith(f".{name}"))
        page = f"# {title}\n{''.join(apart)}\n::: {module}\n    options:\n      members:\n{members}"
        yield f"reference/{module}.md", page


def table_of_contents(pages: Mapping[str, Mapping[str, str]]) -> str:
    """Return llms.txt: each page with its address as Markdown."""
    lines = [
        "# refinesynth",
        "",
        "> Verified agent trajectories with mistakes and their repair, for training agents.",
        "",
    ]
    for section, entries in pages.items():
        lines += [f"## {section}", "", *(f"- [{title}]({path})" for title, path in entries.items()), ""]
    return "\n".join(lines)


def decisions() -> dict[str, str]:
    """Return the pages of decisions by their titles."""
    return {
        path.read_text(encoding="utf-8").splitlines()[0].lstrip("# "): f"decisions/{path.name}"
        for path in sorted((SOURCE / "decisions").glob("*.md"))
    }


def navigation(pages: Mapping[str, Mapping[str, str]]) -> list[Any]:
    """Return the navigation in the form of the site generator."""
    api = [{module: f"reference/{module}.md"} for module in API]
    listed: list[Any] = [{"Home": "index.md"}]
    for section, entries in pages.items():
        items: list[Any] = [{title: path} for title, path in entries.items()]
        listed.append({section: [*items, {"Modules": api}] if section == "Reference" else items})
    return listed


def main(arguments: Iterable[str]) -> None:
    """Write pages and configuration, build, and add the Markdown of each page."""
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(SOURCE, BUILD, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for path, text in reference():
        (BUILD / path).parent.mkdir(parents=True, exist_ok=True)
        (BUILD / path).write_text(text, encoding="utf-8")
    pages = {**NAVIGATION, "Decisions": decisions()}
    config = ROOT / "build" / "mkdocs.yml"
    config.write_text(
        json.dumps(
            {
                "site_name": "refinesynth",
                "docs_dir": "docs",
                "site_dir": "site",
                "use_directory_urls": False,
                "nav": navigation(pages),
                "theme": {"name": "material", "font": False, "features": ["navigation.sections", "content.code.copy"]},
                "markdown_extensions": ["tables", "toc", "pymdownx.superfences", "pymdownx.highlight", "admonition"],
                "plugins": [
                    "search",
                    {
                        "mkdocstrings": {
                            "handlers": {
                                "python": {
                                    "paths": [".."],
                                    "options": {
                                        "docstring_style": "google",
                                        "show_source": False,
                                        "show_root_heading": True,
                                        "show_signature_annotations": True,
                                        "separate_signature": True,
                                    },
                                }
                            }
                        }
                    },
                ],
            },
            indent=1,
        ),
        encoding="utf-8",
    )
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "-f", str(config), *arguments]
    subprocess.run(command, check=True, cwd=config.parent)
    shutil.move(config.parent / "site", SITE)
    for page in BUILD.rglob("*.md"):
        shutil.copy(page, SITE / page.relative_to(BUILD))
    (SITE / "llms.txt").write_text(table_of_contents(pages), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
