"""The HTTP server: the API of dibs for clients in any language, without database credentials, and the dashboard."""
