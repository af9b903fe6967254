"""`python -m fastpack`."""

import sys

from fastpack.cli import main

if __name__ == "__main__":
    sys.exit(main())
