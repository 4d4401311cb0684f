"""Start-up: what an import and `--help` cost beside an interpreter that does nothing, in the same minute.

python bench/startup.py
"""

import subprocess
import sys
import time

ROUNDS = 15
COMMANDS = {
    "python -c pass (reference)": ["-c", "pass"],
    "import refinesynth": ["-c", "import refinesynth"],
    "refinesynth.rules": ["-c", "import refinesynth; refinesynth.rules"],
    "refinesynth --help": ["-m", "refinesynth", "--help"],
    "refinesynth.synthesize": ["-c", "import refinesynth; refinesynth.synthesize"],
}


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    medians = {name: sorted(taken)[ROUNDS // 2] for name, taken in times.items()}
    reference = next(iter(medians.values()))
    print(f"median of {ROUNDS} interleaved rounds")
    for name, median in medians.items():
        print(f"{name:32} {median * 1000:7.0f} ms  {median / reference:5.1f}")


if __name__ == "__main__":
    main()
