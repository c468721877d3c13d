# Build:  docker build -t myxtts .
# Run:    docker run --rm --gpus all -v "$PWD:/work" myxtts train CORPUS
# The driver comes from the host (NVIDIA Container Toolkit); CUDA's run-time libraries come from pip. There is no toolkit in the image.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# The image has the toolchain that rust-toolchain.toml names; without rustfmt and clippy nothing is downloaded.
RUN rm rust-toolchain.toml && cargo build --profile dist --locked -p myxtts
# Models that come with the program, if the repository has any.
RUN mkdir -p models

FROM python:3.12-slim-bookworm
# 13 for drivers from 580 on; `--build-arg CUDA=12` for older ones.
ARG CUDA=13
RUN if [ "$CUDA" = 12 ]; then suffix=-cu12; nccl=-cu12; else suffix=; nccl=-cu13; fi \
    && pip install --no-cache-dir "nvidia-cuda-nvrtc$suffix" "nvidia-cublas$suffix" "nvidia-cuda-cupti$suffix" "nvidia-nccl$nccl"
COPY --from=build /src/target/dist/myxtts /usr/local/bin/myxtts
# Found by `myxtts speak` and others without --model, and by name.
COPY --from=build /src/models /usr/local/share/myxtts/models
# Scripts that train on several machines; docs/cluster/train-job.yaml runs machine.sh from here.
COPY docs/cluster /opt/myxtts/docs/cluster
COPY LICENSE-MIT LICENSE-APACHE /usr/local/share/licenses/myxtts/
# What the NVIDIA Container Toolkit brings into the container: the driver, NVML.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
ENTRYPOINT ["myxtts"]
CMD ["--help"]
