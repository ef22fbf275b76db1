"""Flow control between publishers and subscribers.

credits     publishers wait while their subscribers drain
catch_up    a subscriber that is too slow reads on from the journal until it has caught up
recent      the newest rows in memory, earlier ones from the journal
gaps        rows that are gone before they were delivered, told to the reader
unfinished  one memory budget for messages that have begun and not ended, over all connections
"""
