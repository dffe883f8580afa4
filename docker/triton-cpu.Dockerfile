# Triton for a host without a GPU: the Triton 2.51 of the wheel nvidia-pytriton, our backends.
#   docker build -f docker/triton-cpu.Dockerfile -t plates-triton-cpu:0.5.0 .
# Everything comes from the ordinary hub and package index; no account is needed.
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /plates
# Default: torch's index of CPU builds, or the ordinary one if it does not answer (docker/setup.sh).
ARG TORCH_INDEX
ENV VENV=.venv REQUIREMENTS=docker/requirements ROLE=triton-cpu PIP_NO_CACHE_DIR=1
COPY docker/setup.sh docker/setup.sh
COPY docker/requirements/torch.txt docker/requirements/embedded.txt \
    docker/requirements/triton-cpu.txt docker/requirements/
# One environment serves; another, outside the image's folder, exports: torch is larger than all else.
RUN docker/setup.sh dependencies && VENV=../export ROLE=embedded docker/setup.sh dependencies
COPY LICENSE pyproject.toml ./
COPY api api
COPY plate_models plate_models
COPY plates plates
RUN docker/setup.sh package && VENV=../export docker/setup.sh package
COPY model_repository model_repository
COPY weights weights
# Fails unless TorchScript and ONNX compute what the nets do.
# uid 10001 must be able to read all files, whatever the clone's umask was.
RUN chmod -R a+rX api model_repository plate_models plates weights \
    && ../export/bin/plates export && .venv/bin/python -m compileall -q api plate_models plates

FROM ${PYTHON_IMAGE}
# The base has no bytecode of Python's modules, and none can be written later: each health check
# would compile them.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin plates \
    && install --directory --owner=plates --group=plates /run/plates \
    && python -m compileall -q -x '/tests?/' /usr/local/lib/python3.*
WORKDIR /plates
COPY --from=build /plates /plates
ENV PATH=/plates/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PLATES_PROFILE=cpu \
    PLATES_TRITON_HOST=0.0.0.0 \
    PLATES_TRITON_HTTP_PORT=8000 \
    PLATES_TRITON_GRPC_PORT=8001 \
    PLATES_TRITON_METRICS_PORT=8002 \
    PLATES_STATUS_FILE=/run/plates/triton.json
EXPOSE 8000 8001 8002
USER 10001:10001
ENTRYPOINT ["plates", "triton"]
