"""Who may do what: roles, tokens, browser sessions, OIDC, rate limits, sealed secrets."""
