"""`python -m fastpack`."""

from fastpack.cli.process import run

if __name__ == "__main__":
    run()
