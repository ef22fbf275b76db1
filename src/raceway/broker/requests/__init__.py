"""Requests and their answers.

exchanges    a request to exactly one responder, the answer to exactly one requester
correlation  open requests by responder and id, with their deadlines
replies      answers addressed by reply queue and message id
refusals     answers that the bus itself gives
"""
