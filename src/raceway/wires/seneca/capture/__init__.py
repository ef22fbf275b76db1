"""Read captured Seneca traffic."""
