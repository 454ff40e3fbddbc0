"""Looking at dibs from outside: what happened, and whether it kept its promises."""
