"""The evidence and its gradient: sites and passes over rows. May import `numerics` to `sources`."""
