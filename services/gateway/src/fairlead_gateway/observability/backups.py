"""What is known of scheduled backups."""

import msgspec

from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects
from fairlead_common.protocol.backups import BACKUP_STATE, BackupState
from fairlead_gateway.gateway import Gateway


async def backup_state(gateway: Gateway) -> BackupState | None:
    """The state; None: no backup was ever due, or what is stored cannot be read.

    Raises:
        FairleadError: NATS does not answer.
    """
    record = await Bucket(gateway.bus, subjects.BUCKET_CONFIG).get(BACKUP_STATE)
    try:
        return None if record is None else msgspec.json.decode(record.data, type=BackupState)
    except msgspec.DecodeError:
        return None
