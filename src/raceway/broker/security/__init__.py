"""Who may do what.

security  roles, bindings, and the check that every request passes
tokens    from a bearer token to a principal
guesses   back-off for clients that show bad tokens
"""
