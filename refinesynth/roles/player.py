"""The agent: thinks and takes one action (paper, section 3.2; live play)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model

from refinesynth.chat import Message, parse_player
from refinesynth.prompts import Prompts
from refinesynth.roles.asking import Calls, ask
from refinesynth.roles.forms import text_form
from refinesynth.trajectory import MistakeKind, PlayerTurn


@dataclass
class Player:
    """One verb: `act`.

    Its chat is `chat.render_turns` and nothing else, as in training and evaluation: no system prompt, no tools, no schema.
    """

    model: Model
    prompts: Prompts
    answers: int = 2
    """How often an invalid answer goes back to the model."""
    calls: Calls = field(default_factory=Calls)

    async def act(
        self,
        view: Sequence[Message],
        *,
        mistake: MistakeKind | None = None,
        violations: Sequence[str] = (),
    ) -> PlayerTurn:
        """The next turn after `view`, which ends with a user message.

        A `mistake` to make now, or `violations` for which an earlier answer to this view was taken back, are told in a
        private note after the last message; the note is in this one request and nowhere else. A player may think what it is told,
        so violations are sentences in the scene's own words.

        Raises:
            InvalidAnswer: No answer had a thought and an action.
        """
        notes = [view[-1].content]
        if violations:
            notes.append(self.prompts.fill("player_retake", "request", violations=list(violations)))
        if mistake is not None:
            notes.append(self.prompts.fill("player_mistake", "request", mistake=mistake))
        return await ask(
            _FORM,
            "\n\n".join(notes),
            model=self.model,
            calls=self.calls,
            answers=self.answers,
            history=[_as_message(message) for message in view[:-1]],
        )


def _turn(text: str) -> PlayerTurn:
    turn = parse_player(text)
    if not turn.thought:
        # Whoever trains on it would learn to act without thinking.
        raise ValueError('there is no thought; write "Thought: ..." and then "Action: ..."')
    return turn


_FORM = text_form(_turn)


def _as_message(message: Message) -> ModelMessage:
    if message.role == "user":
        return ModelRequest(parts=[UserPromptPart(message.content)])
    return ModelResponse(parts=[TextPart(message.content)])
