"""The operations of the SQL engines: what each does, in statements that both engines have under the same name."""

from __future__ import annotations

from dibs.store.operations.checkpoints import Checkpoints
from dibs.store.operations.exchanging import Exchanging
from dibs.store.operations.finalizing import Finalizing
from dibs.store.operations.keys import Keys
from dibs.store.operations.looking import Looking
from dibs.store.operations.managing import Managing
from dibs.store.operations.measuring import Measuring
from dibs.store.operations.outlining import Outlining
from dibs.store.operations.racing import Racing
from dibs.store.operations.registering import Registering
from dibs.store.operations.retaining import Retaining
from dibs.store.operations.sampling import Sampling
from dibs.store.operations.scheduling import Scheduling
from dibs.store.operations.searching import Searching
from dibs.store.operations.sessions import Sessions
from dibs.store.operations.tallying import Tallying
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
