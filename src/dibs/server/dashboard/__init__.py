"""The dashboard: pages for people, in the server itself, with nothing to build and nothing from elsewhere."""
