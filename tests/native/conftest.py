"""Helpers of this folder stand in op_cases.py; importlib mode needs the folder on the path."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
