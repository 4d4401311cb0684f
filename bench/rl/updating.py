"""One update of a policy: REINFORCE with the rewards of a group as each other's baseline, as in GRPO.

An update is one step on the plays that the policy itself has just drawn, so there is no ratio of probabilities to clip.
There is no penalty for leaving the tuned model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from bench.rl.rollouts import Rollout


class Updated(NamedTuple):
    """What an update saw."""

    unequal: float
    """Share of the groups whose rewards differ: the others teach nothing."""
    astray: float
    """How far the log-probability of a token is from that with which it was drawn, at most: 0 but for rounding."""


def advantages(rewards: Sequence[Sequence[float]]) -> torch.Tensor:
    """Of each play of each group: its reward less the group's mean, in the group's standard deviations; 0 where all are
    equal.
    """
    each = torch.tensor(rewards, dtype=torch.float64)
    centred = each - each.mean(1, keepdim=True)
    equal = (each == each[:, :1]).all(1, keepdim=True)
    return torch.where(equal, 0.0, centred / each.std(1, correction=0, keepdim=True)).float()


def logprobs(model: Any, rollouts: Sequence[Rollout]) -> torch.Tensor:
    """Of each token that the policy drew, play by play: (tokens,)."""
    longest = max(len(one.ids) for one in rollouts)
    ids = torch.tensor([one.ids + [0] * (longest - len(one.ids)) for one in rollouts])
    drawn = torch.tensor([one.drawn + [False] * (longest - len(one.ids)) for one in rollouts])[:, 1:]
    # Padding is behind what is read, so causal attention needs no mask.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    return model.lm_head(hidden[drawn]).log_softmax(-1).gather(1, ids[:, 1:][drawn][:, None])[:, 0]


def update(model: Any, optimizer: Any, groups: Sequence[Sequence[Rollout]]) -> Updated:
    """Step once towards the plays that earned more than others of their group.

    Where all rewards of every group are equal, nothing is changed: an optimizer with a memory would go on by itself.
    """
    good = advantages([[one.world.reward() for one in group] for group in groups])
    unequal = (good != 0).any(1)
    rollouts = [one for group, differs in zip(groups, unequal, strict=True) if differs for one in group]
    if not rollouts:
        return Updated(0.0, 0.0)
    now = logprobs(model, rollouts)
    then = torch.tensor(
        [one for each in rollouts for one, drawn in zip(each.logprobs, each.drawn, strict=True) if drawn]
    )
    weights = good[unequal].flatten().repeat_interleave(torch.tensor([sum(one.drawn) for one in rollouts]))
    loss: Any = -(weights * now).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return Updated(float(unequal.float().mean()), float((now.detach() - then).abs().max()))
