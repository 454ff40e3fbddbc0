"""The OpenAPI document of the HTTP API, and the reference page made from it."""
