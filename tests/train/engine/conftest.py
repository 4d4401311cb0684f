"""Tests of the engine use the tiny tokenizers of all training tests, which lie one folder up."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
