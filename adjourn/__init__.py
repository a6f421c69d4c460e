"""Adjourn: AI-agent runs that stop at a typed wait point and continue when the answer comes.

Import every public name from here. `__init__.pyi` is the list of them, and says where each is defined; a name is loaded
when it is first used, so that `import adjourn` is fast.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)

__all__ = ["__version__", *sorted(_names)]
