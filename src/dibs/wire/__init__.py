"""The JSON of the API: one struct for each shape, with its conversion from and to the model.

The server, the store behind a server and `--json` use the same structs, and the OpenAPI document is made from them. An
attribute has the name that the model uses; `field(name=…)` gives the name that the API uses. A struct has the name of
its component in the OpenAPI document.
"""
