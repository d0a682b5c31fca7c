"""Who may see our pages: users of Airflow who may see the DAG that the data comes from."""

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, HTTPException, status

DAG_ID = "ingest_sensors"


def require_reader(user: Annotated[BaseUser, Depends(get_user)]) -> None:
    """Refuse users without the right to read the ingestion DAG; `get_user` has refused those who are nobody."""
    if not get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=DAG_ID), user=user):
        raise HTTPException(
            status.HTTP_403_FORBIDDEN, f"you may not read the DAG {DAG_ID}, where these pages come from"
        )
