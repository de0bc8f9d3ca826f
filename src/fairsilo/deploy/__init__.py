"""The same silos on other machines: what a site holds and answers, and the engine that asks it; FLARE carries both."""
