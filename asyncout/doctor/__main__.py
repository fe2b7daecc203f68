"""``python -m asyncout.doctor``."""

import sys

from asyncout.doctor.command import main

sys.exit(main())
