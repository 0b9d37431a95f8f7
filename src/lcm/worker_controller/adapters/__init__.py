"""Foreign APIs in the words of `ports`: they translate, and decide nothing."""
