"""The built-in tools as models see them: every request carries these words. What they do is in `runner/`."""

from fairlead_tools.specs.fs import FILES
from fairlead_tools.specs.git import GIT
from fairlead_tools.specs.runtime import CHECKS, RUNTIME

BUILT_IN = [*RUNTIME, *CHECKS, *FILES, *GIT]

BY_NAME = {spec.name: spec for spec in BUILT_IN}
