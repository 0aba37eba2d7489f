# The worker's image, from scratch: the trainer, its shared libraries, and links to it under the
# names torchrun, python, python3, bash and sh.
#   docker build -f docker/worker.Dockerfile -t tilewright-worker:0.1.0 .

ARG BASE=debian:bookworm
# source: built here. host: copied from build/images/worker, the output of docker/collect-root.
ARG ROOT=source

FROM ${BASE} AS source
WORKDIR /source
COPY .ci/install-packages .ci/packages.txt .ci/
RUN .ci/install-packages .ci/packages.txt
COPY . .
ARG COMMIT=
RUN cmake --preset release -DTILEWRIGHT_TESTS=OFF && \
  TILEWRIGHT_COMMIT="$COMMIT" cmake --build --preset release --target tilewright-worker tilewright-launcher
# The date of the bill of materials, in seconds since 1970.
ARG SOURCE_DATE_EPOCH=0
RUN LAUNCHER=build/release/bin/tilewright-launcher docker/collect-root build/release/bin/tilewright-worker /image tilewright-worker

FROM scratch AS host
COPY build/images/worker /image

FROM ${ROOT} AS root

FROM scratch
COPY --from=root /image /
ENV PATH=/usr/bin
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["tilewright-worker"]
