"""The agent: thinks and takes one action (paper, section 3.2; live play)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from refinesynth.chat import Message, parse_player
from refinesynth.prompts import Prompts
from refinesynth.roles.asking import Actor
from refinesynth.roles.forms import text_form
from refinesynth.settings.mistakes import Asked
from refinesynth.trajectory import PlayerTurn


@dataclass
class Player(Actor):
    """One verb: `act`.

    Its chat is `chat.render_turns` and nothing else, as in training and evaluation: no system prompt, no tools, no
    schema.
    """

    async def act(
        self,
        view: Sequence[Message],
        *,
        mistake: Asked | None = None,
        violations: Sequence[str] = (),
    ) -> PlayerTurn:
        """The next turn after `view`, which ends with a user message.

        A `mistake` to make now, or how to repair one, and `violations` for which an earlier answer to this view was taken back, stand in a
        private note after the last message; the note is in this one request and nowhere else. A player may think what
        it reads, so violations are sentences in the scene's own words.

        Raises:
            InvalidAnswer: No answer had a thought and an action.
        """
        seen = with_notes(self.prompts, view[-1].content, mistake, violations)
        return await self.ask(_FORM, seen, history=[_as_message(message) for message in view[:-1]])


def with_notes(prompts: Prompts, seen: str, mistake: Asked | None, violations: Sequence[str]) -> str:
    """The last message, and what is asked for in private after it."""
    notes = [seen]
    if violations:
        notes.append(prompts.fill("player_retake", "request", violations=list(violations)))
    if mistake is not None:
        notes.append(prompts.fill("player_mistake", "request", mistake=mistake.kind, way=mistake.way))
    return "\n\n".join(notes)


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
