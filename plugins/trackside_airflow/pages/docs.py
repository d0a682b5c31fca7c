"""Reports of validations, read from the lake and never written."""

from fastapi import APIRouter, HTTPException, Response, status

from pipelines import steps

router = APIRouter()

_HEADERS = {
    # A report quotes what recorders sent; in Airflow's origin it gets styles and images, but no script.
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",  # a recording that is read again replaces its report
}


@router.get("/docs/{path:path}")
def document(path: str) -> Response:
    """Serve one document of the lake's `docs` area."""
    found = steps.read_document(path) if _is_plain(path) else None
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such report")
    content, media_type = found
    return Response(content, media_type=media_type, headers=_HEADERS)


def _is_plain(path: str) -> bool:
    """Whether a path only goes down: no empty part, no `.` or `..`, nothing that some system takes for a separator."""
    return not any(part in {"", ".", ".."} for part in path.split("/")) and not set(path) & {"\\", "\0"}
