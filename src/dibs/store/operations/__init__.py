"""The operations of the SQL engines: what each does, in statements that both engines have under the same name."""

from __future__ import annotations

from dibs.store.operations.exchanging import Exchanging
from dibs.store.operations.finalize import Finalizing
from dibs.store.operations.inspect import Looking
from dibs.store.operations.keys import Keys
from dibs.store.operations.leases import Checkpoints
from dibs.store.operations.manage import Managing
from dibs.store.operations.measuring import Measuring
from dibs.store.operations.random_order import Racing
from dibs.store.operations.registry import Registering
from dibs.store.operations.retention import Retaining
from dibs.store.operations.schedules import Scheduling
from dibs.store.operations.search import Searching
from dibs.store.operations.sessions import Sessions
from dibs.store.operations.statistics import Sampling
from dibs.store.operations.tallying import Tallying
from dibs.store.operations.workflow_views import Outlining
from dibs.store.operations.workflows import Workflows


class SqlOperations(
    Racing,
    Exchanging,
    Managing,
    Workflows,
    Finalizing,
    Outlining,
    Checkpoints,
    Looking,
    Searching,
    Sampling,
    Tallying,
    Measuring,
    Registering,
    Retaining,
    Scheduling,
    Keys,
    Sessions,
):
    """Every operation of the contract, for engines that speak SQL."""

    served = False
