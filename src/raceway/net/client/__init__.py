"""What the clients of all wires share.

client             the base class of clients: methods that all wires have
address, options   URLs and keywords of `connect`
link, keeper       one connection; keeping a client connected
channel            gRPC calls over a kept connection
http_pool          HTTP calls, over the pool in `net/outgoing`
console, schemas   calls to the console port, and those about schemas
calls, inbox, chain, messages, streams   waiting calls, received messages, the current parent, what users see
failures           failed connections in words
"""
