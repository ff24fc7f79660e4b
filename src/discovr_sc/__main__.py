"""``python -m discovr_sc`` is ``discovr-sc``."""

import sys

from discovr_sc.cli import main

if __name__ == "__main__":
    sys.exit(main())
