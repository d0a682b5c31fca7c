"""The pages that Airflow's server shows for us, below `/trackside`.

Airflow mounts a plugin's application without any check of who asks. So the check is made here, once, for all routes,
and the generated API pages of FastAPI, which no dependency guards, are left out.
"""

from fastapi import Depends, FastAPI

from trackside_airflow.pages import access, docs

app = FastAPI(
    title="Trackside",
    dependencies=[Depends(access.require_reader)],
    openapi_url=None,
)
app.include_router(docs.router)
