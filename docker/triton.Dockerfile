# Triton for a host with NVIDIA GPUs: NVIDIA's own image, our package, the exported models.
#   docker build -f docker/triton.Dockerfile -t plates-triton:0.5.0 .
# docker/README.md lists suitable images, and what to do if the registry answers 401.
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:26.08-py3

FROM ${TRITON_IMAGE} AS build
WORKDIR /plates
# No index of CPU builds: torch with CUDA, although no GPU is visible while an image is built.
ENV VENV=.venv REQUIREMENTS=docker/requirements ROLE=triton TORCH_INDEX= PIP_NO_CACHE_DIR=1
COPY docker/setup.sh docker/setup.sh
COPY docker/requirements/torch.txt docker/requirements/triton.txt docker/requirements/
RUN docker/setup.sh dependencies
COPY LICENSE pyproject.toml ./
COPY api api
COPY plate_models plate_models
COPY plates plates
RUN docker/setup.sh package
COPY model_repository model_repository
COPY weights weights
# With this image's own torch; fails unless TorchScript and ONNX compute what the nets do.
# uid 10001 must be able to read all files, whatever the clone's umask was.
RUN chmod -R a+rX api model_repository plate_models plates weights \
    && .venv/bin/plates export && .venv/bin/python -m compileall -q api plate_models plates

FROM ${TRITON_IMAGE}
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin plates \
    && install --directory --owner=plates --group=plates /run/plates
WORKDIR /plates
COPY --from=build /plates /plates
ENV PATH=/plates/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PLATES_PROFILE=gpu \
    PLATES_TRITON_HOST=0.0.0.0 \
    PLATES_TRITON_HTTP_PORT=8000 \
    PLATES_TRITON_GRPC_PORT=8001 \
    PLATES_TRITON_METRICS_PORT=8002 \
    PLATES_STATUS_FILE=/run/plates/triton.json
EXPOSE 8000 8001 8002
USER 10001:10001
ENTRYPOINT ["plates", "triton"]
