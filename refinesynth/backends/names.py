"""Names of backends: presets, the rehearsal with its faults, litellm model strings, roles."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from pydantic import BaseModel, ValidationError

from refinesynth.backends.backend import REHEARSAL, Backend, Mixed, Role
from refinesynth.backends.providers import known_models, known_providers
from refinesynth.errors import ConfigurationError

if TYPE_CHECKING:
    from refinesynth.rehearsal import Faults


class Preset(BaseModel, frozen=True, extra="forbid"):
    """Short name for a backend."""

    backend: Backend
    note: str
    """Description in one or two sentences."""


_SCRIPT_TOKENS = 8000
"""Maximum tokens of a completion, for providers with a default of about 4,096: a script or a narrated trajectory may be
longer. All these models can give at least 64,000 tokens (litellm's price map)."""


def _preset(name: str, note: str, model: str, **settings: object) -> Preset:
    return Preset(backend=Backend.model_validate({"name": name, "model": model, **settings}), note=note)


_PRESETS = (
    _preset(REHEARSAL, "Embedded: small generated worlds, no key, no network, the same every time.", REHEARSAL),
    _preset("gpt-4o", "OpenAI.", "gpt-4o"),
    _preset("gpt-4o-mini", "OpenAI, cheap.", "gpt-4o-mini"),
    _preset(
        "deepseek",
        # Formerly sold as deepseek-chat: the current model with thinking off. Thinking models reject forced tool
        # calls and charge for text that is not used here.
        "DeepSeek's current chat model, without thinking. DeepSeek-V2.5, the paper's second model, has retired.",
        "deepseek/deepseek-flash",
        max_tokens=_SCRIPT_TOKENS,
        extra={"thinking": {"type": "disabled"}},
    ),
    _preset(
        "deepseek-pro",
        "DeepSeek's large model, without thinking.",
        "deepseek/deepseek-v4-pro",
        max_tokens=_SCRIPT_TOKENS,
        extra={"thinking": {"type": "disabled"}},
    ),
    _preset("claude", "Anthropic's middle model.", "anthropic/claude-sonnet-5-5", max_tokens=_SCRIPT_TOKENS),
    _preset("gemini", "Google's fast model.", "gemini/gemini-3.8-flash"),
    _preset(
        "qwen",
        "Alibaba's middle model, without thinking.",
        "dashscope/qwen3.7-plus",
        max_tokens=_SCRIPT_TOKENS,
        extra={"enable_thinking": False},
    ),
    _preset(
        "ollama",
        "Ollama on this machine, after `ollama pull qwen3:8b`; another model is ollama_chat/NAME.",
        "ollama_chat/qwen3:8b",
    ),
    _preset(
        "vllm",
        "vLLM on port 8000 of this machine, serving Qwen/Qwen3-8B; another model is hosted_vllm/NAME.",
        "hosted_vllm/Qwen/Qwen3-8B",
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.backend.name: preset for preset in _PRESETS})
"""Name to preset; other litellm model strings are names of backends too."""


BackendSpec: TypeAlias = str | Backend | Mapping[str, str | Backend | Sequence[str | Backend]]
"""Name or backend, or a mapping from role to name or backend, with `default` for other roles; a list for a mixture."""

PLANNER = "planner"
"""Backend that only the `repairer` accepts: planning in the executed world, without a model."""

DEFAULT = "default"
"""Key for roles without a key in a mapping."""


_FALLBACKS: Mapping[Role, tuple[str, ...]] = {
    Role.NARRATOR: (Role.DUNGEON_MASTER, DEFAULT),
    Role.JUDGE: (DEFAULT, Role.DUNGEON_MASTER, Role.NARRATOR),
    Role.REPAIRER: (DEFAULT, Role.PLAYER),
}
"""Role to the keys that replace it in a mapping without the role, in order; only `DEFAULT` for other roles."""


def resolve(spec: str | Backend) -> Backend:
    """Return the backend of a name: a preset, `rehearsal:FAULT=RATE,...`, or a litellm model string.

    Raises:
        ConfigurationError: The name is unknown, or the rehearsal's faults are invalid.
    """
    if isinstance(spec, Backend):
        return spec
    name = spec.strip()
    if (preset := PRESETS.get(name.casefold())) is not None:
        return preset.backend
    kind, _, argument = (part.strip() for part in name.partition(":"))
    if kind.casefold() == REHEARSAL:
        if not argument:
            return PRESETS[REHEARSAL].backend
        model = f"{REHEARSAL}:{argument}"
        rehearsal_faults(model)
        return Backend(name=REHEARSAL, model=model)
    if not name or name.split() != [name]:
        raise ConfigurationError(f"{spec!r} is no backend; give one of {_join(PRESETS)} or a litellm model string")
    _check_litellm_name(name)
    return Backend(model=name)


def _check_litellm_name(name: str) -> None:
    prefix, slash, rest = name.partition("/")
    if slash and prefix not in known_providers():
        raise _unknown_error(name, prefix, known_providers(), "a provider that litellm has", suffix=f"/{rest}")
    if slash and not rest:
        raise ConfigurationError(f"{name!r} names a provider and no model; write {name}MODEL")
    if not slash and known_models() and name not in known_models():
        raise _unknown_error(name, name, {*PRESETS, *known_models()}, "a preset or a model that litellm has")


def resolve_roles(spec: BackendSpec) -> dict[Role, Backend]:
    """Return a backend for every role; without `repairer` if its backend is the planner.

    Several backends for one role take turns by episode and play. In a mapping, roles without a key get `default`.
    Exceptions: the narrator first gets the DungeonMaster's backend. Without `default`, the judge gets the
    DungeonMaster's, else the narrator's, and the repairer gets the Player's.

    Raises:
        ConfigurationError: A key is no role, a role has no backend, or a name is unknown.
    """
    if isinstance(spec, str | Backend):
        return dict.fromkeys(Role, resolve(spec))
    if not isinstance(spec, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"a backend is a name, a Backend or a mapping from role to these or to lists of these; got {spec!r}"
        )
    for key in spec:
        if key != DEFAULT and key not in set(Role):
            raise _unknown_error(key, key, {DEFAULT, *Role}, "a role")
    backends = {key: resolve_mixture(key, value) for key, value in spec.items()}
    chosen: dict[Role, Backend] = {}
    for role in Role:
        backend = next((backends[key] for key in (role, *_FALLBACKS.get(role, (DEFAULT,))) if key in backends), None)
        if backend is None:
            raise ConfigurationError(
                f"no backend for {role}: the mapping has {_join(backends)}; add {role!r} or {DEFAULT!r}"
            )
        if backend.model != PLANNER:
            chosen[role] = backend
    return chosen


def resolve_mixture(role: str, spec: object) -> Backend:
    """Return the backend of a mapping's value for a role: a name, a backend, or a list of these for a mixture."""
    is_list = isinstance(spec, Sequence) and not isinstance(spec, str)
    parts = cast("Sequence[object]", spec if is_list else (spec,))
    names = [part for part in parts if isinstance(part, str | Backend)]
    if role == Role.REPAIRER and any(isinstance(part, str) and part.strip().casefold() == PLANNER for part in names):
        if not is_list:
            return Backend(name=PLANNER, model=PLANNER)
        raise ConfigurationError(
            f"{role} has {spec!r}; the planner takes no turns with others, name it alone or leave it out"
        )
    if not names or len(names) != len(parts):
        raise ConfigurationError(f"{role} has {spec!r}; expected a name, a Backend, or a list of one or more of these")
    return Mixed.of([resolve(part) for part in names])


def rehearsal_faults(model: str) -> "Faults":
    """Return the settings in `rehearsal:FAULT=RATE,...`. `skill` belongs to the Player; `families=NAME+NAME` selects
    the worlds of the ScriptWriter (`all` for all worlds).

    Raises:
        ConfigurationError: A fault or family is unknown, or a rate is no probability.
    """
    from refinesynth.rehearsal import Faults
    from refinesynth.rehearsal.families import FAMILIES

    faults, given = Faults(), set[str]()
    for part in filter(None, (part.strip() for part in model.partition(":")[2].split(","))):
        fault, _, value = (text.strip() for text in part.partition("="))
        if fault in given:
            raise ConfigurationError(f"{part!r}: {fault} is given twice; give it once")
        given.add(fault)
        if fault not in Faults.model_fields:
            raise _unknown_error(part, fault, Faults.model_fields, "a fault of the rehearsal")
        names = tuple(FAMILIES) if value == "all" else tuple(dict.fromkeys(name.strip() for name in value.split("+")))
        try:
            faults = Faults.model_validate({**dict(faults), fault: names if fault == "families" else value})
        except ValidationError as error:
            expected = f"a rate is a probability from 0 to 1, as in {fault}=0.1"
            if fault == "families":
                expected = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ConfigurationError(f"{part!r}: {expected}") from None
    return faults


def _unknown_error(text: str, part: str, known: Iterable[str], kind: str, *, suffix: str = "") -> ConfigurationError:
    names = list(known)
    matches = [f"{name}{suffix}" for name in get_close_matches(part, names, n=4, cutoff=0.6)]
    advice = f"did you mean {_join(matches)}?" if matches else "`refinesynth backends` lists the names"
    if not matches and len(names) <= len(PRESETS) + len(Role):
        advice = f"there are {_join(names)}"
    whole = "" if text == part else f"{text!r}: "
    return ConfigurationError(f"{whole}{part!r} is not {kind}; {advice}")


def _join(names: Iterable[str]) -> str:
    return ", ".join(str(name) for name in names)
