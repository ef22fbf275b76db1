"""What happens to an intent. Knows asyncio's clock, but no sockets and no wire."""
