"""`python -m refinesynth` is the command `refinesynth`."""

from refinesynth.cli import main

if __name__ == "__main__":
    main()
