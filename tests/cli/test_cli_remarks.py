"""What is said above the board while a run goes on."""

import logging

from refinesynth.cli.run_display import show_events


def test_what_servers_lack_and_load_are_said_once_and_nothing_else() -> None:
    said = list[str]()
    known = [{"event": "goes_without", "text": "m does not take seed\x1b"}, {"event": "loading", "text": "none"}]
    with show_events(said.append):
        for _ in range(2):
            for facts in known:
                logging.getLogger("refinesynth.backends").warning("%s", facts["text"], extra={"facts": facts})
            logging.getLogger("refinesynth.backends").warning("something else")
    lack, cache = said
    assert (lack, cache) == ("! m does not take seed\\u001b", "! none")
