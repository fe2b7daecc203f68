"""``python -m asyncout.doctor``."""

import sys

from asyncout.doctor.command import main

if __name__ == "__main__":
    sys.exit(main())
