"""The JSON shapes of the HTTP API: one struct for each, with its conversion from and to the model.

The server, the remote store and `--json` use the same structs, and the OpenAPI document is derived from them. An
attribute has the name that the model uses; `field(name=…)` gives the name that the API uses. A struct has the name of
its component in the OpenAPI document.
"""
