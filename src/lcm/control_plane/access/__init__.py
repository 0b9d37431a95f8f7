"""Authentication and authorization: roles, tokens, browser sessions, OIDC, rate limits, sealed secrets."""
