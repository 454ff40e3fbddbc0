"""Names that the tests import. The tests that use them are left out."""

from django.db.transaction import atomic as exclusive_transaction

normalize_uuid = str

__all__ = ["exclusive_transaction", "normalize_uuid"]
