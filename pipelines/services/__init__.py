"""The services that Trackside runs on one machine: object store, MLflow, Ray, Airflow.

`up` starts them under a supervisor, `down` stops every process of theirs, `status` asks each of them, `environment`
says how to reach them and `credentials` who may log in. Everything they keep lies under one folder, the home.

- `home`         the home: its paths, its secrets, its recorded state
- `ports`        which port is whose, and what to say when one is taken
- `environment`  the variables that a client, a task or a service gets
- `definitions`  one entry a service: command, what it needs first, how to see that it is ready
- `health`       questions put to a running service over HTTP
- `processes`    finding and stopping all processes of a home
- `supervisor`   the daemon that starts the services and restarts one that died
- `control`      up, down, status
"""

from pipelines.services.control import Status, down, status, up
from pipelines.services.environment import Login, credentials, environment, marked_environment, use
from pipelines.services.home import Home, ServiceStatus, default_home, open_home

__all__ = [
    "Home",
    "Login",
    "ServiceStatus",
    "Status",
    "credentials",
    "default_home",
    "down",
    "environment",
    "marked_environment",
    "open_home",
    "status",
    "up",
    "use",
]
