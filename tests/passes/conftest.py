"""Helpers of this folder stand beside the tests; importlib mode needs the folder on the path."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
