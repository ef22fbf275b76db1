"""Delivery to subscribers that cannot keep up. Publishers wait for them first (`net/credits.py`).

live_peer   a peer that receives copies live, and leaves the live path while it is too slow
catch_up    a subscriber that is too slow reads on from the journal until it has caught up
recent      the newest rows in memory, earlier ones from the journal
gaps        rows that are gone before they were delivered, told to the reader
"""
