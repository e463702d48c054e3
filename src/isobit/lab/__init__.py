"""The lab: tools that look at the numbers of an engine."""
