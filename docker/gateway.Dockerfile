# The gateway alone: HTTP in, gRPC to a Triton elsewhere. No torch, no Triton, no models. With
# `--build-arg ROLE=cameras` it follows cameras, too.
#   docker build -f docker/gateway.Dockerfile -t plates-gateway:0.5.0 .
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG ROLE=gateway
WORKDIR /plates
ENV VENV=.venv REQUIREMENTS=docker/requirements PIP_NO_CACHE_DIR=1
COPY docker/setup.sh docker/setup.sh
COPY docker/requirements/gateway.txt docker/requirements/cameras.txt docker/requirements/
RUN docker/setup.sh dependencies
COPY LICENSE pyproject.toml ./
COPY api api
COPY plate_models plate_models
COPY plates plates
# uid 10001 must be able to read all files, whatever the clone's umask was.
RUN docker/setup.sh package && chmod -R a+rX api plate_models plates \
    && .venv/bin/python -m compileall -q api plate_models plates

FROM ${PYTHON_IMAGE}
# /var/lib/plates is for the cameras' database: a volume there gets the folder's owner. The base has
# no bytecode of Python's modules, and none can be written later: each health check would compile
# them.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin plates \
    && install -d -o plates -g plates /var/lib/plates \
    && python -m compileall -q -x '/tests?/' /usr/local/lib/python3.*
WORKDIR /plates
COPY --from=build /plates /plates
ENV PATH=/plates/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PLATES_HOST=0.0.0.0 \
    PLATES_PORT=8080
EXPOSE 8080
USER 10001:10001
ENTRYPOINT ["plates", "serve"]
