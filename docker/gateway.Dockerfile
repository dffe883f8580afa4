# The gateway alone: HTTP in, gRPC to a Triton elsewhere. No torch, no Triton, no models.
#   docker build -f docker/gateway.Dockerfile -t plates-gateway:0.5.0 .
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /plates
ENV VENV=.venv REQUIREMENTS=docker/requirements ROLE=gateway PIP_NO_CACHE_DIR=1
COPY docker/setup.sh docker/setup.sh
COPY docker/requirements/gateway.txt docker/requirements/
RUN docker/setup.sh dependencies
COPY LICENSE pyproject.toml ./
COPY api api
COPY plate_models plate_models
COPY plates plates
RUN docker/setup.sh package && .venv/bin/python -m compileall -q api plate_models plates

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin plates
WORKDIR /plates
COPY --from=build /plates /plates
ENV PATH=/plates/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PLATES_HOST=0.0.0.0 \
    PLATES_PORT=8080
EXPOSE 8080
USER 10001:10001
ENTRYPOINT ["plates", "serve"]
