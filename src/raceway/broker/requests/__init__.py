"""Requests and their answers.

exchanges     a request to exactly one responder, the answer to exactly one requester
correlation   open requests by responder and id, or by the name of their answer, with their deadlines
reply_queues  answers that no request waits for
refusals      answers that the bus itself gives
"""
