FROM python:3.12.12-slim-bookworm

# No cache and no bytecode in the layers; logs appear as they are written.
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

RUN useradd --create-home --uid 10001 adjourn

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY adjourn ./adjourn
RUN pip install . && rm -rf /src

# The user's own tools are mounted, or copied, here: `--app module:attribute` is looked up in this folder.
WORKDIR /app
ENV PYTHONPATH=/app
USER adjourn

ENTRYPOINT ["adjourn"]
CMD ["worker"]
