"""NEFTune (arXiv 2310.05914): noise on embeddings while training, of one size for a conversation however it is
packed.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

from typing import Any, cast

import torch
from torch import Tensor, nn

from refinesynth.train.engine.head import base_model


class EmbeddingNoise:
    """Adds uniform noise up to alpha / sqrt(tokens x width) to what the model's embeddings give in training.

    The tokens are those of a token's conversation. The library's own hook would count those of the whole row: a pack of
    ten conversations would get a third of the noise, and padding would change it.
    """

    def __init__(self, model: nn.Module, alpha: float) -> None:
        self._alpha = alpha
        self.tokens = torch.ones(1, 1)
        """(rows, T) or (rows, 1) Tokens of the conversation that each token of the next forward pass is of."""
        cast("Any", base_model(model)).get_input_embeddings().register_forward_hook(self._added)

    def _added(self, embeddings: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        if not embeddings.training:
            return output
        most = self._alpha / (self.tokens * output.shape[-1]).sqrt()
        return output + torch.empty_like(output).uniform_(-1, 1) * most[..., None].to(output.dtype)
