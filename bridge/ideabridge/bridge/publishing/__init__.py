"""Making tools of ideas."""
