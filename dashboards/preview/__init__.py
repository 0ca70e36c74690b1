"""A preview of the boards without Grafana: their own queries, asked of a Prometheus and drawn in their own grid.

For pictures and reviews. It reads the generated JSON, so what is wrong there is wrong here; it is not Grafana and says
so.
"""
