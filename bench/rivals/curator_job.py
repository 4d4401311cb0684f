"""The job in Bespoke Curator, run by its own Python: curator_job.py BASE_URL FOLDER COUNT; prints how many answers
there are.

The same command again goes on in the same folder.
"""

import logging
import sys
from importlib import import_module
from typing import Any


def main(base_url: str, folder: str, count: int) -> None:
    # Typed as Any: it is not installed where this file is checked.
    curator: Any = import_module("bespokelabs.curator")
    logging.disable(logging.CRITICAL)
    llm = curator.LLM(
        model_name="gpt-4o-mini",
        backend="openai",
        backend_params={
            "base_url": base_url,
            # Its defaults are 200 requests a minute.
            "max_requests_per_minute": 1_000_000,
            "max_tokens_per_minute": 1_000_000_000,
            "max_concurrent_requests": 256,
        },
    )
    answers = llm(
        [f"Describe the person with the number {at} in one sentence." for at in range(count)], working_dir=folder
    )
    print(len(answers.dataset))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
