"""The listening side of all wires: sockets feed codecs, their events go to the broker, answers come back."""
