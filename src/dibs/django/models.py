"""No models: the tables belong to dibs. Django sends the signal `post_migrate` only to apps with this module."""
