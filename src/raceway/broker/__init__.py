"""The broker: performs the intents of peers. Knows asyncio's clock, but no sockets and no wire."""
