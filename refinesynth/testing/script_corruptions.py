"""Valid scripts, each broken in one named way, with the script rule that must catch it."""

from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.testing.breaking import Breaks, Corruption, broken, rules_of
from refinesynth.testing.drawing import pick, whole
from refinesynth.testing.valid import valid_scripts
from refinesynth.trajectory import ActionSpec, Script


def script_corruptions(*names: str) -> st.SearchStrategy[Corruption]:
    """Drafts without turns whose script is broken, of the `names` given or of all in `SCRIPT_CORRUPTIONS`.

    `rules.script()` refuses each, and the rule named is among those that find something.
    """
    return broken(valid_scripts(), _BREAKS, names)


def _with(script: Script, *actions: ActionSpec) -> Script:
    return script.model_copy(update={"actions": actions})


def _change_first(script: Script, **fields: object) -> Script:
    """The first action of a valid script has two parameters, `thing` and `place`."""
    return _with(script, script.actions[0].model_copy(update=fields), *script.actions[1:])


def _refused_pattern(script: Script, draw: st.DrawFn) -> Script:
    refused = (r"(?=take).*", r"(\w+) \1", "(unclosed", "x{5000}", "(a{999}){999}", "x" * 3_000)
    return _change_first(script, pattern=pick(draw, refused))


def _groups_do_not_fit(script: Script, draw: st.DrawFn) -> Script:
    verb = script.actions[0].name.partition(" ")[0]
    wrong = (f"{verb} (.+)", f"({verb}) (.+) from (.+)", f"{verb} (?P<thing>.+) from (?P<where>.+)", f"{verb} .+")
    return _change_first(script, pattern=pick(draw, wrong))


def _misses_template(script: Script, draw: st.DrawFn) -> Script:
    verb = script.actions[0].name.partition(" ")[0]
    wrong = (f"{verb}(.+)of(.+)", f"{verb} (thing) from (place)", f"{verb}ing (.+) from (.+)", f"(.+) {verb} (.+)")
    return _change_first(script, pattern=pick(draw, wrong))


def _ambiguous(script: Script, draw: st.DrawFn) -> Script:
    catches = pick(draw, (".+", r"\s*(?:.*) *", r"\S+(?: .*)?"))
    return _with(script, *script.actions, ActionSpec(name="anything else", pattern=catches))


def _matches_nothing(script: Script, draw: st.DrawFn) -> Script:
    pattern = pick(draw, ("(?:hum)?", "(?:hum)*", "hum|", "^(?:hum|$)"))
    return _with(script, *script.actions, ActionSpec(name="hum", pattern=pattern))


def _parameter_missing(script: Script, draw: st.DrawFn) -> Script:
    gone = pick(draw, ("thing", "place"))
    kept = {name: values for name, values in script.actions[0].parameters.items() if name != gone}
    return _change_first(script, parameters=kept)


def _parameter_spare(script: Script, draw: st.DrawFn) -> Script:
    spare = pick(draw, ("tool", "Thing", "place "))
    return _change_first(script, parameters={**script.actions[0].parameters, spare: ()})


def _same_name(script: Script, draw: st.DrawFn) -> Script:
    first = script.actions[0]
    name = pick(draw, (first.name, first.name.upper(), f" {first.name}  "))
    return _with(script, *script.actions, ActionSpec(name=name, pattern="hum"))


def _too_few_actions(script: Script, draw: st.DrawFn) -> Script:
    return _with(script, *script.actions[: whole(draw, 0, 2)])


def _too_many_actions(script: Script, draw: st.DrawFn) -> Script:
    more = whole(draw, 40, 60)
    return _with(script, *script.actions, *(ActionSpec(name=f"hum {n}", pattern=f"hum {n}") for n in range(more)))


def _environment(script: Script, draw: st.DrawFn) -> Script:
    deep: JsonValue = "bottom"
    for _ in range(whole(draw, 13, 50)):
        deep = {"in": deep}
    large: JsonValue = {"items": "thing " * whole(draw, 10_000, 12_000)}
    empty: JsonValue = {}
    return script.model_copy(update={"environment": pick(draw, (empty, deep, large))})


_BREAKS: Breaks[Script] = {
    "refused pattern": ("PatternsCompile", _refused_pattern),
    "groups do not fit": ("GroupsFitPlaceholders", _groups_do_not_fit),
    "misses its template": ("PatternsMatchTheirTemplates", _misses_template),
    "ambiguous pattern": ("PatternsAreUnambiguous", _ambiguous),
    "matches nothing": ("PatternsNeedText", _matches_nothing),
    "parameter missing": ("PlaceholdersHaveParameters", _parameter_missing),
    "parameter to spare": ("PlaceholdersHaveParameters", _parameter_spare),
    "same name": ("UniqueNames", _same_name),
    "too few actions": ("ActionCount", _too_few_actions),
    "too many actions": ("ActionCount", _too_many_actions),
    "environment out of limits": ("EnvironmentLimits", _environment),
}

SCRIPT_CORRUPTIONS = rules_of(_BREAKS)
"""Name of each corruption to the class name of the script rule that must catch it."""
