"""Entry for `python -m refinesynth.train`: the command `refinesynth train`, in the form that torchrun needs."""

import sys

if __name__ == "__main__":
    from refinesynth.__main__ import main

    sys.argv[1:1] = ["train"]
    main()
