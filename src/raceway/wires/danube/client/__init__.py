"""Danube's client: `client` has `DanubeClient`, `consumer` a consumer over all partitions."""
