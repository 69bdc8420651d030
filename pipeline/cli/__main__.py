"""`python -m pipeline.cli`: the same as `headrace`."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
