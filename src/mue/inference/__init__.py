"""From a run folder to ranked answers."""
