"""Models: whom a turn asks. Providers through pydantic-ai, retries, and scripts for tests and demos.

Importing this package imports no provider; the first request of a `ProviderModel` does.
"""

from adjourn.tasks.models.protocol import Model as Model
from adjourn.tasks.models.providers import ProviderModel as ProviderModel
from adjourn.tasks.models.resolve import resolve as resolve
from adjourn.tasks.models.retry import RetryingModel as RetryingModel
from adjourn.tasks.models.scripted import ScriptedModel as ScriptedModel
from adjourn.tasks.models.scripted import call as call
from adjourn.tasks.models.scripted import call_raw as call_raw
from adjourn.tasks.models.scripted import say as say
from adjourn.tasks.models.strict import StrictModel as StrictModel
