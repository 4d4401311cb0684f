"""The libraries' methods that are overridden or reached into here, as they were when that was written.

Most have no promise behind them. A release that changes one would fail in the middle of a training, or, worse, pass it
by.
"""

import inspect
from collections.abc import Mapping
from importlib import metadata
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any, Final

from refinesynth.errors import ConfigurationError

_TRAINER: Final = "transformers:Trainer."
RENDERING: Final[Mapping[str, str]] = {
    "transformers.utils.chat_template_utils:render_jinja_template": "conversations tools documents chat_template "
    "return_assistant_tokens_mask continue_final_message add_generation_prompt kwargs",
}
"""What writes conversations, which takes no trainer."""
TRAINING: Final[Mapping[str, str]] = {
    **RENDERING,
    f"{_TRAINER}compute_loss": "self model inputs return_outputs num_items_in_batch",
    f"{_TRAINER}evaluate": "self eval_dataset ignore_keys metric_key_prefix",
    f"{_TRAINER}floating_point_ops": "self inputs",
    f"{_TRAINER}get_optimizer_cls_and_kwargs": "args model",
    f"{_TRAINER}get_train_dataloader": "self",
    f"{_TRAINER}log": "self logs start_time",
    f"{_TRAINER}save_model": "self output_dir _internal_call",
    f"{_TRAINER}_determine_best_metric": "self metrics trial",
    f"{_TRAINER}_get_grad_norm": "self model grad_norm",
    f"{_TRAINER}_get_num_items_in_batch": "self batch_samples device",
    f"{_TRAINER}_load_best_model": "self",
    f"{_TRAINER}_load_from_checkpoint": "self resume_from_checkpoint model",
    f"{_TRAINER}_load_optimizer_and_scheduler": "self checkpoint",
    f"{_TRAINER}_prepare_inputs": "self inputs",
    f"{_TRAINER}_run_epoch": "self model epoch train_dataloader steps_in_epoch num_update_steps_per_epoch trial ignore_keys_for_eval "
    "start_time resume_from_checkpoint epochs_trained steps_trained_in_current_epoch",
    f"{_TRAINER}_save": "self output_dir state_dict",
    f"{_TRAINER}_save_checkpoint": "self model trial",
    "transformers:TrainingArguments._setup_devices.func": "self",
    "transformers.core_model_loading:revert_weight_conversion": "model state_dict",
}
STARTING: Final[Mapping[str, str]] = {
    "torch.distributed.elastic.multiprocessing.api:_terminate_process_handler": "signum frame"
}
_TESTED: Final = {"transformers": "5.23.0", "torch": "2.13.0"}


def check(expected: Mapping[str, str]) -> None:
    """Make sure that a library is the one that ours was written for, in all that one of these tables names.

    Raises:
        ConfigurationError: It is not; the message names the version that is.
    """
    changed = [f"{place}{what}" for place, names in expected.items() if (what := _change(place, names))]
    if changed:
        package = next(iter(expected)).partition(":")[0].partition(".")[0]
        raise ConfigurationError(
            f"the installed {package} {metadata.version(package)} is not the one that this was written for: {'; '.join(changed)}. "
            f"{package} {_TESTED[package]} works: pip install '{package}=={_TESTED[package]}'"
        )


def _change(place: str, names: str) -> str:
    """How what is found at `place` differs; empty if it does not."""
    owner, _, member = place.partition(":")[2].rpartition(".")
    try:
        module: Any = resolve_name(place.partition(":")[0])
        found = inspect.getattr_static(attrgetter(owner)(module) if owner else module, member)
    except AttributeError:
        return " is not there"
    got = " ".join(inspect.signature(getattr(found, "__func__", found)).parameters)
    return "" if got == names else f" takes ({got.replace(' ', ', ')}), not ({names.replace(' ', ', ')})"
