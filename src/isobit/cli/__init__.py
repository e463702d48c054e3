"""The command `isobit`: one module for each subcommand, imported only when it is called."""
