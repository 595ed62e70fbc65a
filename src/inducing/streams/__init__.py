"""Rows as they come: `lines` reads them, `feeding` gives them to a learner, `scores` adds up how good their
predictions were, `session` keeps it all and saves it. May import the rooms from `numerics` to `beside`.
"""
