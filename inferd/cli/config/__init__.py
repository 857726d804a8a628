"""``inferd config``: one module per command."""
