"""Questions put to a running service over HTTP, answered with yes or no within a short time."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from typing import Any

# Loopback only: a proxy from the environment must not come between.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(
    url: str,
    *,
    codes: tuple[int, ...] = (200,),
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    timeout_s: float = 5.0,
) -> bool:
    """Say whether the URL answers with one of the status codes."""
    request = urllib.request.Request(url, headers=dict(headers or {}), method=method)
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            return response.status in codes
    except urllib.error.HTTPError as error:
        return error.code in codes
    except OSError:
        return False


def airflow_component_is_alive(base_url: str, component: str, *, since_s: float, timeout_s: float = 10.0) -> bool:
    """Say whether Airflow's API has seen a heartbeat of a component since a time, in seconds since 1970."""
    try:
        with _opener.open(f"{base_url}/api/v2/monitor/health", timeout=timeout_s) as response:
            report: dict[str, Any] = json.load(response)[component]
    except (OSError, ValueError):
        return False
    heartbeat = report.get(f"latest_{component}_heartbeat")
    if report.get("status") != "healthy" or not heartbeat:
        return False
    return datetime.fromisoformat(heartbeat).timestamp() >= since_s
