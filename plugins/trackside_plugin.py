"""What Trackside adds to Airflow's own server; nothing but the registration."""

from typing import Any

from airflow.plugins_manager import AirflowPlugin


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """Our pages, imported at the first request: every task loads this file too, and the pages cost it seconds."""
    from trackside_airflow.pages import app

    await app(scope, receive, send)


class TracksidePlugin(AirflowPlugin):
    """Registers the pages under `/trackside`."""

    name = "trackside"
    fastapi_apps = [{"name": "trackside", "app": pages, "url_prefix": "/trackside"}]  # noqa: RUF012, Airflow's own type
