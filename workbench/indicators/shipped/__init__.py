"""The indicators that come with the workbench: one fixed definition each, the same in every framework."""
