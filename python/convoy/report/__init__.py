"""Plans, schedules and measurements as tables, as an HTML page and as a Chrome trace."""
