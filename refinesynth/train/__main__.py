"""`python -m refinesynth.train` is the command `refinesynth train`, in the form that torchrun starts."""

import sys

if __name__ == "__main__":
    from refinesynth.__main__ import main

    sys.argv[1:1] = ["train"]
    main()
