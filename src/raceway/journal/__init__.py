"""The durable columnar log: the one truth of the bus."""
